import { randomBytes } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Installation } from '../src/control/installation.ts';
import { withConnection } from '../src/lib/postgres/connection.ts';
import { makeIdentity } from '../src/operator/backup/archive/identities.ts';
import { createArchiveWriter } from '../src/operator/backup/archive-writer.ts';
import { withBackupLock } from '../src/operator/backup/backup-lock.ts';
import { runBackup } from '../src/operator/backup/run-backup.ts';
import { FolderTarget } from '../src/operator/backup/target/folder-target.ts';
import { initTarget } from '../src/operator/backup/writer.ts';
import { type BenchInstallation, withBenchInstallation } from './bench-installation.ts';
import { makeFleet } from './fleet-tenants.ts';
import { readScriptOptions } from './script-options.ts';

/**
 * Measures the first archive of a fleet, a run in which few tenants have changed, and one in
 * which none has.
 */
const usage = { command: 'bench:backup', text: 'Measures archives of a fleet with 4 connections.' };
const { tenants: count } = readScriptOptions(usage, { tenants: 1_000 });
const changed = Math.ceil(count / 50);
const concurrency = 4;
const keep = { allMs: 0, hours: 24, days: 7, weeks: 5, months: 12 };

await withBenchInstallation(bench);

async function bench(opened: BenchInstallation): Promise<void> {
  const { installation, folder } = opened;
  const fleet = await makeFleet(opened, count);
  const run = await prepareRun(installation, join(folder, 'archives'));
  const rows: Record<string, object> = {};

  const measure = async (name: string): Promise<void> => {
    const { archived, unchanged, failed, bytes, ms } = await run();
    const s = (ms / 1_000).toFixed(1);
    const MiB = (bytes / 1024 / 1024).toFixed(1);
    rows[name] = {
      archived,
      unchanged,
      failed,
      MiB,
      s,
      rss: Math.round(process.memoryUsage().rss / 1024 / 1024),
    };
  };

  await measure('first run');

  for (const { url } of fleet.slice(0, changed)) {
    await withConnection(url, client =>
      client.query('insert into currencies (code, name) values ($1, $2)', [
        randomBytes(2).toString('hex'),
        'New',
      ]),
    );
  }
  await measure(`${changed} changed`);
  await measure('none changed');

  console.table(rows);
}

/**
 * Makes the target.
 * @returns what runs a backup
 */
async function prepareRun(installation: Installation, folder: string) {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const target = new FolderTarget(folder);
  const { recipient } = await makeIdentity();
  await withBackupLock(installation.controlUrl, 'archives', control =>
    initTarget(control, target, { takeOver: false, isDryRun: false }),
  );
  const write = await createArchiveWriter(installation);
  return async () => {
    const request = { concurrency, keep, recipients: [recipient] };
    const report = await runBackup(installation, target, request, write);
    if (!report) throw new Error('another run is in progress');

    return report;
  };
}
