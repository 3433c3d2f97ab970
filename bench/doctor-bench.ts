import { root, startProgram } from '../test/support/command-line.ts';
import { type BenchInstallation, withBenchInstallation } from './bench-installation.ts';
import { measureCommand } from './fleet-command.ts';
import { makeFleet } from './fleet-tenants.ts';
import { readScriptOptions } from './script-options.ts';

/**
 * Measures `doctor`, which opens every database, on a large fleet with the real command line.
 */
const usage = { command: 'bench:doctor', text: 'Measures doctor on many tenants.' };
const { tenants } = readScriptOptions(usage, { tenants: 1_500 });

await withBenchInstallation(bench, ['max_connections=100', 'shared_buffers=256MB']);

async function bench(opened: BenchInstallation): Promise<void> {
  const environment = { DATABASE_URL: opened.controlUrl, MASTER_KEY: opened.masterKey };
  await makeFleet(opened, tenants);
  const { ms, peakMb, stdout } = await measureCommand(
    startProgram(`${root}/bin/backoffice`, ['doctor', '--json'], environment),
  );
  const { findings } = JSON.parse(stdout) as { findings: readonly unknown[] };

  console.log(
    `${tenants} tenants: ${(ms / 1_000).toFixed(1)} s, peak memory ${peakMb.toFixed(0)} MB, ` +
      `${findings.length} findings`,
  );
}
