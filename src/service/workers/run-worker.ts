import type { Logger } from 'pino';
import { createPasswords, hashConcurrency } from '../../accounts/auth/passwords.ts';
import { type Installation, openInstallation } from '../../control/installation.ts';
import { type Config, readConfig } from '../../lib/config/config.ts';
import { embeddedMasterKey } from '../../lib/embedded/master-key.ts';
import { createManagementServer } from '../../lib/http/server/management.ts';
import { listen, managementNames, portOf } from '../../lib/http/server/server-ports.ts';
import { createLog } from '../../lib/log/log.ts';
import { explain } from '../../lib/log/operator-error.ts';
import { onStopSignal, type StopSignal } from '../../lib/runtime/signals.ts';
import { onFault } from '../process/faults.ts';
import { type RunOptions, reportListening } from '../process/run-service.ts';
import { type RunningApi, startApi } from '../server.ts';
import { readMessage, type ToPrimary, type ToWorker } from './messages.ts';
import type { RestartSignal } from './restart-signal.ts';
import { killWorkers, unrequested } from './worker-process.ts';
import { startWorkers } from './workers.ts';

/**
 * The time for which open connections may send a further request before a restarted worker
 * closes them.
 */
const handOverMs = 5_000;

/** Checks that an installation is one on which the service can run. */
type CheckInstallation = (installation: Installation) => Promise<void>;

/**
 * Runs a worker process: serves requests until the primary process asks it to end. It ends at
 * once when the primary process is gone.
 */
export async function runWorker(check: CheckInstallation): Promise<void> {
  // The primary process gets the signals too (Ctrl-C, a service manager), and asks all workers
  // to end.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => {});
  try {
    await serve(check);
  } catch (error) {
    send({ type: 'failed', text: explain(error) }, () => process.exit(1));
  }
}

async function serve(check: CheckInstallation): Promise<void> {
  const config = readConfig();
  const { log, output } = createLog(config.logLevel);
  process.on('exit', output.flushFinally);
  const installationOpened = Promise.withResolvers<Installation>();
  const ending = Promise.withResolvers<(api: RunningApi) => Promise<boolean>>();
  let api: RunningApi | undefined;
  process.on('message', received => {
    const message = readMessage<ToWorker>(received);
    switch (message?.type) {
      case 'start':
        installationOpened.resolve(openAsWorker(config, message.databaseUrl));
        break;
      case 'read_ready':
        send({ type: 'ready', id: message.id, reason: api ? api.unreadyReason() : 'starting' });
        break;
      case 'read_metrics':
        if (api) void sendMetrics(api, message.id, message.withFleet);
        break;
      case 'hand_over':
        ending.resolve(running => running.handOver(handOverMs));
        break;
      case 'stop':
        if (!api) process.exit(0);
        ending.resolve(running => running.stop(message.delayMs));
        break;
    }
  });

  const installation = await installationOpened.promise;
  await check(installation);
  const passwords = createPasswords(hashConcurrency(config.processes));
  api = await startApi({ config, installation, log, passwords, logOutput: output });
  onFault(log, () => {
    send({ type: 'leaving' });
    ending.resolve(running => running.stop());
  });
  send({ type: 'started', port: api.port });

  const finished = await (await ending.promise)(api);
  await installation.close();
  await sendMetrics(api, unrequested, false);
  process.exit(finished ? process.exitCode : 1);
}

/**
 * @param embeddedUrl of the control database, if that is on the embedded PostgreSQL, which the
 *   primary process uses
 */
async function openAsWorker(
  config: Config,
  embeddedUrl: string | undefined,
): Promise<Installation> {
  if (embeddedUrl === undefined) return openInstallation(config, 'service');
  const masterKey = config.masterKey ?? (await embeddedMasterKey(config.dataDir));
  return openInstallation({ ...config, databaseUrl: embeddedUrl, masterKey }, 'service');
}

/**
 * Resolves when the metrics are sent. Never throws: without a response, the primary process
 * uses the last ones.
 */
async function sendMetrics({ metrics }: RunningApi, id: number, withFleet: boolean): Promise<void> {
  const values = await metrics.read(withFleet).catch(() => undefined);
  if (values) await new Promise<void>(resolve => send({ type: 'metrics', id, values }, resolve));
}

/**
 * Sends a message. Ignores errors: they mean that the primary process is gone, and then this
 * process ends too.
 */
function send(message: ToPrimary, onSent: () => void = () => {}): void {
  process.send?.(message, undefined, undefined, () => onSent());
}

/**
 * Runs the primary process: starts the workers, restarts them on SIGHUP, and serves health
 * checks and metrics, until a signal or a fault ends it.
 */
export async function runWorkers(
  { config, installation, demo, log, output, ignoreEarlySignals }: RunOptions,
  restarts: RestartSignal,
): Promise<void> {
  const { processes, managementPort, managementHost } = config;
  const databaseUrl = installation.embedded ? installation.controlUrl : undefined;
  const workers = await startWorkers({ processes, databaseUrl, log });
  const management = createManagementServer(workers);
  try {
    await listen(management, managementPort, managementHost, managementNames);
  } catch (error) {
    workers.stop(0, false);
    await workers.ended;
    throw error;
  }

  ignoreEarlySignals();
  const stopped = primaryEnd(log, restarts);
  restarts.onRestart(() => workers.restart());
  reportListening({
    config,
    log,
    output,
    demo,
    ports: { port: workers.port, managementPort: portOf(management) },
  });

  const reason = await stopped;
  log.info({ event: 'stopping', reason }, 'stopping after the running requests');
  workers.stop(reason === 'SIGTERM' ? config.shutdownDelayMs : 0, reason === 'fault');
  const exitCode = await workers.ended;
  if (exitCode !== 0) process.exitCode = exitCode;

  management.closeAllConnections();
  await new Promise(resolve => management.close(resolve));
}

/** Resolves when the process must end: on a signal, or on an error that nothing handled. */
function primaryEnd(log: Logger, { stopSignals }: RestartSignal): Promise<StopSignal | 'fault'> {
  return new Promise(resolve => {
    const abort = (): void => {
      killWorkers();
      process.exit(1);
    };
    onStopSignal(stopSignals, resolve, abort);
    onFault(log, () => resolve('fault'));
  });
}
