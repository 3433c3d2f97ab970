import cluster from 'node:cluster';
import { readConfig, settingWarnings } from './config/config.ts';
import { openInstallation } from './installation.ts';
import { createLog } from './log/log.ts';
import { explain } from './log/operator-error.ts';
import { exitOnSignals, isEndedBySignal } from './process/early-signals.ts';
import { prepareInstallation } from './process/prepare-installation.ts';
import { runService } from './process/run-service.ts';
import { RestartSignal } from './workers/restart-signal.ts';
import { runWorker, runWorkers } from './workers/run-worker.ts';
import { killWorkers } from './workers/worker-process.ts';

/**
 * Runs the process: configuration → installation → server, until a signal ends it. With `PROCESSES`, this process
 * starts workers, which run this file too and serve the requests.
 */
async function main(): Promise<void> {
  const config = readConfig();
  const { log, output } = createLog(config.logLevel);
  process.on('exit', output.flushFinally);
  const restarts = config.processes > 1 ? new RestartSignal(log) : undefined;
  for (const warning of settingWarnings()) log.warn({ event: 'setting' }, warning);
  if (config.processesNote) log.info({ event: 'processes' }, config.processesNote);
  const opening = openInstallation(config, 'service', log);
  const ignoreEarlySignals = exitOnSignals(async () => {
    killWorkers();
    await (await opening).close();
  });
  let installation = await opening;
  try {
    const prepared = await prepareInstallation(installation, config, log);
    ({ installation } = prepared);
    const options = { config, prepared, log, output, ignoreEarlySignals };
    await (restarts ? runWorkers(options, restarts) : runService(options));
  } finally {
    await installation.close();
  }
}

if (cluster.isWorker) {
  await runWorker();
} else {
  await main().catch(error => {
    if (isEndedBySignal()) return;
    console.error(explain(error));
    process.exitCode = 1;
  });
}
