import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import pg from 'pg';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { type DatabaseCounters, isProvedUnchanged, readCounters } from '../../src/operator/backup/change-proof.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { postgresUrl } from './test-server.ts';

/** One step of a schedule: of a writer, which may hold a transaction open, or of a backup run. */
interface Step {
  readonly kind: string;
  readonly writer: number;
}

/** A schedule of writers, and of backup runs that poll the counters and take their snapshot later, if they need one. */
export const schedule = fc.array(
  fc.oneof(
    {
      weight: 4,
      arbitrary: fc.record({
        kind: fc.constantFrom('connect', 'begin', 'insert', 'commit', 'abort', 'end'),
        writer: fc.nat(1),
      }),
    },
    { weight: 4, arbitrary: fc.record({ kind: fc.constantFrom('poll', 'snapshot'), writer: fc.constant(0) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('truncate', 'reset'), writer: fc.nat(1) }) },
  ),
  { minLength: 5, maxLength: 25 },
);

/** How a backup run proves that a database has not changed. */
export interface ProofMethod {
  readonly isProved: (proof: string | null, now: DatabaseCounters | undefined) => boolean;
  /** False for a fault: the counters that are stored with an archive are those after its snapshot. */
  readonly pollsBefore: boolean;
}

export const production: ProofMethod = { isProved: isProvedUnchanged, pollsBefore: true };

/** A database in which schedules run. */
export interface ProofDatabase {
  readonly url: string;
  poll(): Promise<DatabaseCounters | undefined>;
  /**
   * Runs the steps one after the other.
   * @returns how often the database was proved unchanged, and how often it had changed in spite of the proof
   */
  run(steps: readonly Step[], method?: ProofMethod): Promise<{ proved: number; missed: number }>;
  close(): Promise<void>;
}

export async function createProofDatabase(): Promise<ProofDatabase> {
  const name = `proof_${randomBytes(5).toString('hex')}`;
  const url = databaseUrl(postgresUrl(), name);
  const server = new pg.Client(postgresUrl());
  await server.connect();
  await server.query(`create database ${name}`);
  await withConnection(url, client => client.query('create table entries (value integer)'));
  const poll = async () => (await readCounters(server)).get(name);
  /** Returns the rows; undefined while a writer has truncated them and not committed. */
  const readRows = (): Promise<string | undefined> =>
    withConnection(url, async client => {
      await client.query('set lock_timeout = 50');
      const { rows } = await client.query<{ rows: string }>(
        `select coalesce(string_agg(ctid::text || ' ' || value, ','), '') as rows from entries`,
      );
      return rows[0]?.rows;
    }).catch(() => undefined);

  const run: ProofDatabase['run'] = async (steps, method = production) => {
    await withConnection(url, client => client.query('truncate entries'));
    const writers: (pg.Client | undefined)[] = [];
    let archive: { proof: string | null; rows: string } | undefined;
    /** The proof of an archive whose snapshot is still to come. */
    let planned: { proof: string | null } | undefined;
    const result = { proved: 0, missed: 0 };
    for (const { kind, writer } of steps) {
      const client = writers[writer];
      if (kind === 'connect' && !client) {
        writers[writer] = new pg.Client({ connectionString: url, options: '-c lock_timeout=50' });
        await writers[writer].connect();
      } else if (kind === 'end') {
        await client?.end();
        writers[writer] = undefined;
      } else if (kind === 'insert') await client?.query('insert into entries values (1)').catch(() => {});
      else if (kind === 'truncate') await client?.query('truncate entries').catch(() => {});
      else if (kind === 'reset') await withConnection(url, session => session.query('select pg_stat_reset()'));
      else if (kind === 'poll') {
        const counters = await poll();
        const rows = await readRows();
        if (!archive || !method.isProved(archive.proof, counters)) planned = { proof: counters?.fingerprint ?? null };
        // What the poll proved was visible when it began: nothing ran between it and this read.
        else if (rows !== undefined) {
          result.proved++;
          if (rows !== archive.rows) result.missed++;
        }
      } else if (kind === 'snapshot') {
        const rows = planned && (await readRows());
        if (!planned || rows === undefined) continue;
        archive = { proof: method.pollsBefore ? planned.proof : ((await poll())?.fingerprint ?? null), rows };
        planned = undefined;
      } else if (client) await client.query(kind === 'abort' ? 'rollback' : kind).catch(() => {});
    }
    await Promise.all(writers.map(writer => writer?.end()));
    return result;
  };
  const close = async (): Promise<void> => {
    await server.query(`drop database ${name} with (force)`);
    await server.end();
  };
  return { url, poll, run, close };
}
