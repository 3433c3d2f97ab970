import { setTimeout as sleep } from 'node:timers/promises';
import { createApiServer } from '../lib/http/server/api-server.ts';
import { createManagementServer, type UnreadyReason } from '../lib/http/server/management.ts';
import { refuseUnparsed } from '../lib/http/server/refuse-unparsed.ts';
import { listen, managementNames, portOf } from '../lib/http/server/server-ports.ts';
import { sendingMs } from '../lib/http/steps/limit-duration.ts';
import { requestDeadlineMs } from '../lib/runtime/deadline.ts';
import { atMost } from '../lib/runtime/within.ts';
import { requestListener } from '../lib/seams/request-listener.ts';
import { createApp } from './app.ts';
import { createServices, type ServiceOptions } from './services.ts';

/** The API without a management server: each worker process runs one. */
export type RunningApi = Awaited<ReturnType<typeof startApi>>;

export interface RunningServer extends Pick<RunningApi, 'port' | 'databases' | 'stop'> {
  /** Port of the health checks and metrics. */
  readonly managementPort: number;
}

interface ServerOptions extends ServiceOptions {
  /** Maximum time of a request, in milliseconds; shortened in tests. */
  deadlineMs?: number;
}

const maxStopMs = 25_000; // less than the 30 s after which orchestrators kill a process

/**
 * Starts the service on an open installation: makes its parts, and listens.
 * @throws {OperatorError} when a port cannot be listened on
 */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const { config } = options;
  const api = await startApi(options);
  const management = createManagementServer(api);

  try {
    await listen(management, config.managementPort, config.managementHost, managementNames);
  } catch (error) {
    await api.stop();
    throw error;
  }

  const { port, databases } = api;
  return {
    port,
    managementPort: portOf(management),
    databases,
    stop: async delayMs => {
      const finished = await api.stop(delayMs);
      management.closeAllConnections();
      await new Promise(resolve => management.close(resolve));
      return finished;
    },
  };
}

/** Starts the service without health checks and metrics. */
export async function startApi({ deadlineMs = requestDeadlineMs, ...options }: ServerOptions) {
  const { config } = options;

  const services = await createServices(options);
  const {
    feed,
    processClock,
    secrets,
    metrics,
    databases,
    unsentResponses,
    imports,
    countRequest,
  } = services;

  const stopping = new AbortController();
  const draining = new AbortController();
  const app = createApp({ ...services, deadlineMs, draining: draining.signal });
  const handle = requestListener(app, ({ req, res, state }, body) =>
    unsentResponses.add(res, req.socket, body, state.context?.tenant.guid ?? ''),
  );
  const api = createApiServer({
    silenceMs: deadlineMs + sendingMs,
    handle,
    refuse: refuseUnparsed(options.log, countRequest, config.corsOrigins),
    keepAliveMs: config.keepAliveMs,
  });

  try {
    await listen(api.http, config.port, config.host, { host: 'HOST', port: 'PORT' });
  } catch (error) {
    api.http.close();
    await services.close();
    throw error;
  }

  services.webhooks.start();
  services.mails.start();
  services.notices.start();
  services.regularWork.start();

  const beginStop = (): void => {
    stopping.abort();
    imports.stopWithin(maxStopMs);
    api.closeAfterResponses();
  };

  const drain = async (maxMs: number): Promise<boolean> => {
    draining.abort();
    services.changeStreams.stop();
    const finished = await api.drain(maxMs);
    await services.close();
    return finished;
  };

  return {
    port: portOf(api.http),
    databases,
    metrics,

    /**
     * Returns the reason why no request should be sent to the process now; undefined when it is
     * ready.
     */
    unreadyReason: (): UnreadyReason | undefined => {
      if (stopping.signal.aborted) return 'stopping';
      if (!feed.current) return 'control_database';
      if (processClock.isWrong) return 'clock';
      return secrets.isReady ? undefined : 'master_key';
    },

    /**
     * Becomes not ready, continues to serve for `delayMs` milliseconds so that balancers
     * notice, then refuses new connections and finishes running requests.
     * @returns false when requests were cut off
     */
    stop: async (delayMs = 0): Promise<boolean> => {
      beginStop();
      if (delayMs > 0) await sleep(delayMs);
      return drain(maxStopMs - delayMs);
    },

    /**
     * Becomes not ready and refuses new connections, which other workers accept. For at most
     * `delayMs` milliseconds, each open connection may send a request and is closed after its
     * response; then `stop`.
     */
    handOver: async (delayMs: number): Promise<boolean> => {
      beginStop();
      await atMost(api.refuseConnections(), delayMs);
      return drain(maxStopMs - delayMs);
    },
  };
}
