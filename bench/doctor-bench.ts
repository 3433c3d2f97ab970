import { withConnection } from '../src/postgres/connection.ts';
import { root, startProgram } from '../test/support/command-line.ts';
import { type BenchInstallation, withBenchInstallation } from './bench-installation.ts';
import { progress } from './bench-progress.ts';
import { measureCommand } from './fleet-command.ts';
import { type FleetTenant, makeFleet } from './fleet-tenants.ts';
import { readScriptOptions } from './script-options.ts';

/**
 * Measures `doctor` on a large fleet with the real command line: the first look, which opens every database, the
 * second one, which opens none because nothing changed, and one after a change in some databases.
 */
const usage = {
  command: 'bench:doctor',
  text: 'Measures doctor on many tenants: first look, unchanged, some changed.',
};
const { tenants, changed } = readScriptOptions(usage, { tenants: 1_500, changed: 20 });

await withBenchInstallation(bench, ['max_connections=100', 'shared_buffers=256MB']);

async function bench(opened: BenchInstallation): Promise<void> {
  const environment = { DATABASE_URL: opened.controlUrl, MASTER_KEY: opened.masterKey };
  const fleet = await makeFleet(opened, tenants);
  await look(environment, 'first look', tenants);
  await look(environment, 'nothing changed', 0);
  for (const tenant of fleet.slice(0, changed)) await change(tenant);
  await look(environment, `${changed} changed`, changed);
}

/**
 * Runs `doctor` and prints what it took. It also opens a database in which an autovacuum worker is at the moment.
 * @param opens the number of databases that it has to open
 */
async function look(environment: Record<string, string>, name: string, opens: number): Promise<void> {
  progress(name);
  const { ms, peakMb, stdout } = await measureCommand(
    startProgram(`${root}/bin/backoffice`, ['doctor', '--json'], environment),
  );
  const { unchanged } = JSON.parse(stdout) as { unchanged: number };
  const opened = tenants - unchanged;
  if (opened < opens) throw new Error(`${opened} databases were opened, ${opens} have changed`);
  const seconds = (ms / 1_000).toFixed(1);
  console.log(`${name.padEnd(16)} ${seconds} s, peak memory ${peakMb.toFixed(0)} MB, ${opened} databases opened`);
}

/** Writes a row, as a request would. */
function change({ url }: FleetTenant): Promise<unknown> {
  return withConnection(url, client => client.query('update tenant_identity set guid = guid'));
}
