import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { runBackup } from '../src/operator/archives/run-backup.ts';
import { folderTarget } from '../src/operator/archives/targets/folder-target.ts';
import { withConnection } from '../src/postgres/connection.ts';
import { type BenchInstallation, withBenchInstallation } from './bench-installation.ts';
import { makeFleet } from './fleet-tenants.ts';
import { readScriptOptions } from './script-options.ts';

/** Measures the first archive of a fleet, a run in which few tenants have changed, and one in which none has. */
const usage = { command: 'bench:backup', text: 'Measures archives of a fleet with 4 connections.' };
const { tenants: count } = readScriptOptions(usage, { tenants: 1_000 });
const changed = Math.ceil(count / 50);
const concurrency = 4;
const keep = { allMs: 0, hours: 24, days: 7, weeks: 5, months: 12 };

await withBenchInstallation(bench);

async function bench(opened: BenchInstallation): Promise<void> {
  const { installation, folder } = opened;
  const fleet = await makeFleet(opened, count);
  const target = folderTarget(join(folder, 'archives'));
  const rows: Record<string, object> = {};
  const measure = async (name: string): Promise<void> => {
    const { archived, unchanged, failed, bytes, ms } = await runBackup(installation, target, { concurrency, keep });
    const s = (ms / 1_000).toFixed(1);
    const MiB = (bytes / 1024 / 1024).toFixed(1);
    rows[name] = { archived, unchanged, failed, MiB, s, rss: Math.round(process.memoryUsage().rss / 1024 / 1024) };
  };
  await measure('first run');
  for (const { url } of fleet.slice(0, changed))
    await withConnection(url, client =>
      client.query('insert into currencies (code, name) values ($1, $2)', [randomBytes(2).toString('hex'), 'New']),
    );
  await measure(`${changed} changed`);
  await measure('none changed');
  console.table(rows);
}
