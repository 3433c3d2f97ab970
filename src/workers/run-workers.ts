import { isatty } from 'node:tty';
import type { Logger } from 'pino';
import { createManagementServer } from '../http/management.ts';
import { listen, portOf } from '../http/server-ports.ts';
import { onFault } from '../process/faults.ts';
import { type RunOptions, reportListening } from '../process/run-service.ts';
import { onStopSignal } from '../runtime/signals.ts';
import { startWorkers, type Workers } from './workers.ts';

/**
 * Runs the primary process: starts the workers, restarts them on SIGHUP, and serves health checks and metrics, until a
 * signal or a fault ends it.
 */
export async function runWorkers({ config, prepared, log, output, ignoreEarlySignals }: RunOptions): Promise<void> {
  const { installation, demo } = prepared;
  const { processes, managementPort, managementHost } = config;
  const databaseUrl = installation.embedded ? installation.controlUrl : undefined;
  const workers = await startWorkers({ processes, databaseUrl, log });
  const management = createManagementServer(workers);
  try {
    await listen(management, managementPort, managementHost, 'MANAGEMENT_');
  } catch (error) {
    workers.stop(0, false);
    await workers.ended;
    throw error;
  }
  ignoreEarlySignals();
  const stopped = primaryEnd(log, workers);
  reportListening({ config, log, output, demo, ports: { port: workers.port, managementPort: portOf(management) } });

  const reason = await stopped;
  log.info({ event: 'stopping', reason }, 'stopping after the running requests');
  workers.stop(reason === 'SIGTERM' ? config.shutdownDelayMs : 0, reason === 'fault');
  const exitCode = await workers.ended;
  if (exitCode !== 0) process.exitCode = exitCode;
  management.closeAllConnections();
  await new Promise(resolve => management.close(resolve));
}

/**
 * Resolves when the process must end: on a signal, or on an error that nothing handled. SIGHUP restarts the workers;
 * but on a terminal, it means that the terminal was closed.
 */
function primaryEnd(log: Logger, workers: Workers): Promise<'SIGTERM' | 'SIGINT' | 'SIGHUP' | 'fault'> {
  const hasTerminal = isatty(0);
  if (!hasTerminal) process.on('SIGHUP', () => workers.restart());
  return new Promise(resolve => {
    const abort = (): void => {
      workers.kill();
      process.exit(1);
    };
    onStopSignal(['SIGTERM', 'SIGINT', ...(hasTerminal ? (['SIGHUP'] as const) : [])], resolve, abort);
    onFault(log, () => resolve('fault'));
  });
}
