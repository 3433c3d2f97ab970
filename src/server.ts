import { setTimeout as delay } from 'node:timers/promises';
import { createApp } from './app.ts';
import type { TenantDatabases } from './connections/tenant-databases.ts';
import { requestDeadlineMs } from './deadline.ts';
import { createApiServer } from './http/api-server.ts';
import { createManagementServer } from './http/management.ts';
import { refuseUnparsed } from './http/refuse-unparsed.ts';
import { requestListener } from './http/request-listener.ts';
import type { WriteMonitor } from './response-cache/write-monitor.ts';
import { listen, portOf } from './server-ports.ts';
import { createServices, type ServiceOptions } from './services.ts';

export interface RunningServer {
  /** Ports of the API, and of the health checks and metrics. */
  readonly port: number;
  readonly managementPort: number;
  readonly databases: TenantDatabases;
  readonly writeMonitor: WriteMonitor;
  /**
   * Becomes not ready, continues to serve for `delayMs` milliseconds so that balancers notice, then refuses new
   * connections and finishes running requests.
   * @returns false when requests were cut off
   */
  stop(delayMs?: number): Promise<boolean>;
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
export async function startServer({
  deadlineMs = requestDeadlineMs,
  ...options
}: ServerOptions): Promise<RunningServer> {
  const { config } = options;
  const services = await createServices(options);
  const { feed, metrics, databases, writeMonitor, responseCache, unsentResponses } = services;
  const stopping = new AbortController();
  const draining = new AbortController();
  const app = createApp({ ...services, deadlineMs, draining: draining.signal });
  const handle = requestListener(app, ({ req, res, state }, body) =>
    unsentResponses.add(res, req.socket, body, state.tenant?.guid ?? ''),
  );
  const api = createApiServer({
    handle,
    refuse: refuseUnparsed(options.log, metrics.count),
    keepAliveMs: config.keepAliveMs,
  });
  const management = createManagementServer({ isReady: () => feed.current && !stopping.signal.aborted, metrics });
  try {
    await listen(api.http, config.port, config.host, '');
    await listen(management, config.managementPort, config.managementHost, 'MANAGEMENT_');
  } catch (error) {
    api.http.close();
    await services.close();
    throw error;
  }
  writeMonitor.start(() => responseCache.counts.hits + responseCache.counts.misses);
  return {
    port: portOf(api.http),
    managementPort: portOf(management),
    databases,
    writeMonitor,
    stop: async (delayMs = 0) => {
      stopping.abort();
      api.closeAfterResponses();
      if (delayMs > 0) await delay(delayMs);
      draining.abort();
      const finished = await api.drain(maxStopMs - delayMs);
      await services.close();
      management.closeAllConnections();
      await new Promise(resolve => management.close(resolve));
      return finished;
    },
  };
}
