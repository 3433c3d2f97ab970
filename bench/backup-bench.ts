import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import pLimit from 'p-limit';
import { createPasswords } from '../src/auth/passwords.ts';
import { Tenant } from '../src/control/fleet-entities.ts';
import { databaseUrl } from '../src/control/server-urls.ts';
import { type BackupReport, runBackup } from '../src/operator/archives/run-backup.ts';
import { folderTarget } from '../src/operator/archives/targets/folder-target.ts';
import { checkManifest } from '../src/operator/lifecycle/manifest.ts';
import { provision } from '../src/operator/lifecycle/provision.ts';
import { withConnection } from '../src/postgres/connection.ts';
import { type BenchInstallation, withBenchInstallation } from './bench-installation.ts';
import { readScriptOptions } from './script-options.ts';
import { timed } from './spread.ts';

/** Measures the first archive of a fleet, a run in which few tenants have changed, and one in which none has. */
const usage = { command: 'bench:backup', text: 'Measures archives of a fleet with 4 connections.' };
const { tenants: count } = readScriptOptions(usage, { tenants: 1_000 });
const changed = Math.ceil(count / 50);
const concurrency = 4;
const keep = { hours: 24, days: 7, weeks: 5, months: 12 };

await withBenchInstallation(bench);

async function bench({ installation, serverUrl, folder }: BenchInstallation): Promise<void> {
  // The preparation is not measured, so it need not wait for the disk.
  await changeSetting(serverUrl, 'fsync = off');
  const passwords = createPasswords(undefined, { memoryCost: 8, timeCost: 1 });
  await pLimit(concurrency).map(
    Array.from({ length: count }, (_, number) => `tenant-${number}`),
    slug =>
      provision(installation, passwords, checkManifest({ slug, name: slug, admin: { email: 'a@bench.test' } }, slug)),
  );
  await changeSetting(serverUrl, 'fsync = on');
  await withConnection(serverUrl, client => client.query('checkpoint'));

  const target = folderTarget(join(folder, 'archives'));
  const run = () => runBackup(installation, target, { concurrency, keep });
  const rows: Record<string, object> = {};
  const measure = async (name: string): Promise<void> => {
    let report: BackupReport | undefined;
    const ms = await timed(async () => {
      report = await run();
    });
    const { archived = 0, unchanged = 0, failed = 0, bytes = 0 } = report ?? {};
    const rss = Math.round(process.memoryUsage().rss / 1024 / 1024);
    rows[name] = {
      archived,
      unchanged,
      failed,
      MiB: (bytes / 1024 / 1024).toFixed(1),
      s: (ms / 1_000).toFixed(1),
      rss,
    };
  };
  await measure('first run');
  const tenants = await installation.control.em.fork().find(Tenant, {}, { limit: changed, orderBy: { id: 'asc' } });
  for (const { databaseName } of tenants)
    await withConnection(databaseUrl(serverUrl, databaseName), client =>
      client.query('insert into currencies (code, name) values ($1, $2)', [randomBytes(2).toString('hex'), 'New']),
    );
  await measure(`${changed} changed`);
  await measure('none changed');
  console.table(rows);
  await rm(join(folder, 'archives'), { recursive: true });
}

async function changeSetting(serverUrl: string, setting: string): Promise<void> {
  await withConnection(serverUrl, async client => {
    await client.query(`alter system set ${setting}`);
    await client.query('select pg_reload_conf()');
  });
}
