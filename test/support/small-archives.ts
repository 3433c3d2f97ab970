import { Readable } from 'node:stream';
import type { Installation } from '../../src/control/installation.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import type {
  BackupOutcome,
  BackupReport,
  WriteArchive,
} from '../../src/operator/backup/run-backup.ts';
import { runBackup } from '../../src/operator/backup/run-backup.ts';
import type { Target } from '../../src/operator/backup/target/target.ts';
import { eventually } from './eventually.ts';

/** Recipients that nothing is sealed for. */
export const recipients = [`age1${'q'.repeat(58)}`];

/** Everything is kept: the tests of what is kept say so. */
export const keepAll = { allMs: Number.POSITIVE_INFINITY, hours: 0, days: 0, weeks: 0, months: 0 };

/**
 * Writes archives that only say what they would be of, in place of tar, compression and seal.
 */
export const writeSmall: WriteArchive = (order, store) =>
  withConnection(order.url, async client => {
    const table = order.tenant ? 'currencies' : 'tenants';
    const { rows } = await client.query<{ rows: number }>(
      `select count(*)::int as rows from ${table}`,
    );
    const document = JSON.stringify({ name: order.name.name, rows: rows[0]?.rows });
    const written = await store(Readable.from([Buffer.from(document)]));

    return {
      rows: rows[0]?.rows ?? 0,
      leftOut: [],
      numbers: new Map(),
      schemaVersion: '0001-first-schema',
      unpackedBytes: document.length,
      written,
    };
  });

/** A run of a test, with what it reported of each database. */
export interface TestRun extends BackupReport {
  /** `acme: archived`, sorted. */
  readonly states: string[];
  readonly outcomes: BackupOutcome[];
}

/** Runs a backup with small archives. */
export async function runSmall(
  installation: Installation,
  target: Target,
  request: Partial<Parameters<typeof runBackup>[2]> = {},
  write: WriteArchive = writeSmall,
): Promise<TestRun> {
  const outcomes: BackupOutcome[] = [];
  const whole = { concurrency: 4, keep: keepAll, recipients, ...request };
  const run = () =>
    runBackup(installation, target, whole, write, {
      onOutcome: outcome => outcomes.push(outcome),
    });
  // the server may not have noticed yet that an earlier run was killed
  const report = (await run()) ?? (await eventually(run));

  return {
    ...report,
    outcomes,
    states: outcomes.map(({ slug, state }) => `${slug}: ${state}`).sort(),
  };
}
