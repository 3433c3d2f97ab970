import cluster from 'node:cluster';
import { openInstallation } from './control/installation.ts';
import { readConfig, settingWarnings } from './lib/config/config.ts';
import { mailWarnings } from './lib/config/mail-warnings.ts';
import { proxyWarnings } from './lib/config/proxy-warnings.ts';
import { createLog } from './lib/log/log.ts';
import { explain } from './lib/log/operator-error.ts';
import { stopSignals } from './lib/runtime/signals.ts';
import { within } from './lib/runtime/within.ts';
import { prepareInstallation } from './operator/first-start/prepare-installation.ts';
import { requireControlHead } from './operator/recovery/control-head.ts';
import { exitOnSignals, isEndedBySignal } from './service/process/early-signals.ts';
import { runService } from './service/process/run-service.ts';
import { RestartSignal } from './service/workers/restart-signal.ts';
import { runWorker, runWorkers } from './service/workers/run-worker.ts';
import { killWorkers } from './service/workers/worker-process.ts';

const maxCloseMs = 3_000; // a server that does not answer

/**
 * Runs the process: configuration → installation → server, until a signal ends it. With
 * `PROCESSES`, this process starts workers, which run this file too and serve the requests.
 */
async function main(): Promise<void> {
  const config = readConfig();
  const { log, output } = createLog(config.logLevel);
  process.on('exit', output.flushFinally);
  const restarts = config.processes > 1 ? new RestartSignal(log) : undefined;

  const warnings = [...settingWarnings(), ...mailWarnings(config), ...proxyWarnings(config)];
  for (const warning of warnings) {
    log.warn({ event: 'setting' }, warning);
  }
  if (config.processesNote) log.info({ event: 'processes' }, config.processesNote);

  const opening = openInstallation(config, 'service', { log });
  const ignoreEarlySignals = exitOnSignals(restarts?.stopSignals ?? stopSignals, async () => {
    killWorkers();
    await (await opening).close();
  });

  let installation = await opening;
  try {
    const prepared = await prepareInstallation(installation, config, log);
    ({ installation } = prepared);

    const options = { config, ...prepared, log, output, ignoreEarlySignals };
    await (restarts ? runWorkers(options, restarts) : runService(options));
  } finally {
    // the error of a start is the one to report
    await within(installation.close(), maxCloseMs).catch(() => {});
  }
}

if (cluster.isWorker) {
  await runWorker(requireControlHead);
} else {
  await main().catch(error => {
    if (isEndedBySignal()) return;
    console.error(explain(error));
    // This ends the parts that the start has left open. The process serves nothing, and its
    // manager starts it again.
    process.exit(1);
  });
}
