import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import pg from 'pg';
import { databaseUrl } from '../../src/control/server-urls.ts';
import {
  type ChangeCounters,
  isProvedUnchanged,
  readDatabaseCounters,
} from '../../src/lib/postgres/change-counters.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { eventually } from './eventually.ts';
import { postgresUrl } from './test-server.ts';

/**
 * One step of a schedule: of a writer, which may hold a transaction open, or of a backup run.
 */
interface Step {
  readonly kind: string;
  readonly writer: number;
}

const writers = fc.nat(1);
const steps = (writer: fc.Arbitrary<number>, ...kinds: string[]) =>
  fc.record({ kind: fc.constantFrom(...kinds), writer });

/**
 * A schedule of writers, and of backup runs. `run` lets the run take its next step: it polls
 * the counters, takes a snapshot if it needs one, and completes the archive. A `poll` is that
 * of a new run, after the one under way was killed. Writers that connect, insert a row and end
 * at once, and resets, let counters return to earlier values.
 */
export const schedule = fc.array(
  fc.oneof(
    {
      weight: 4,
      arbitrary: steps(writers, 'connect', 'begin', 'insert', 'commit', 'abort', 'end'),
    },
    { weight: 4, arbitrary: steps(fc.constant(0), 'run', 'run', 'run', 'poll') },
    { weight: 2, arbitrary: steps(writers, 'write', 'reset', 'truncate') },
  ),
  { minLength: 5, maxLength: 30, size: 'max' },
);

/** A way in which a backup run proves that a database has not changed. */
export interface ProofMethod {
  readonly isProved: (proof: string | null, now: ChangeCounters | undefined) => boolean;
  /**
   * False for a fault: the counters that are stored with an archive are those of its
   * completion.
   */
  readonly pollsBefore: boolean;
}

export const production: ProofMethod = { isProved: isProvedUnchanged, pollsBefore: true };

/** A database in which schedules run. */
export interface ProofDatabase {
  readonly url: string;
  poll(): Promise<ChangeCounters | undefined>;
  /**
   * Runs the steps one after the other, and then an archive and polls while nobody writes,
   * which prove the database unchanged in the end.
   * @returns how often the database was proved unchanged, and how often it had changed in spite
   *   of the proof
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
  const poll = async () => (await readDatabaseCounters(server)).get(name);
  /** Returns the rows; undefined while a writer has truncated them and not committed. */
  const readRows = (): Promise<string | undefined> =>
    withConnection(url, async client => {
      await client.query('set lock_timeout = 50');
      const { rows } = await client.query<{ rows: string }>(
        `select coalesce(string_agg(ctid::text || ' ' || value, ','), '') as rows from entries`,
      );
      return rows[0]?.rows;
    }).catch(() => undefined);

  /** Runs one statement in a session of its own. */
  const execute = (text: string) => withConnection(url, client => client.query(text));
  let isEmpty = true;

  const run: ProofDatabase['run'] = async (steps, method = production) => {
    if (!isEmpty) await execute('truncate entries');
    isEmpty = !steps.some(({ kind }) => kind === 'insert' || kind === 'write');
    const sessions: (pg.Client | undefined)[] = [];
    let archive: { proof: string | null; rows: string } | undefined;
    /** The archive of a run that is under way: without rows before its snapshot. */
    let planned: { proof: string | null; rows?: string } | undefined;
    const result = { proved: 0, missed: 0 };
    const take = async ({ kind, writer }: Step): Promise<void> => {
      const session = sessions[writer];

      if (kind === 'connect' && !session) {
        sessions[writer] = new pg.Client({ connectionString: url, options: '-c lock_timeout=50' });
        await sessions[writer].connect();
      } else if (kind === 'end') {
        await session?.end();
        sessions[writer] = undefined;
      } else if (kind === 'insert') {
        await session?.query('insert into entries values (1)').catch(() => {});
      } else if (kind === 'truncate') {
        await session?.query('truncate entries').catch(() => {});
      } else if (kind === 'write') {
        await execute(`set lock_timeout = 50; insert into entries values (1)`).catch(() => {});
      } else if (kind === 'reset') {
        await execute('select pg_stat_reset()');
      } else if (kind === 'poll' || (kind === 'run' && !planned)) {
        const counters = await poll();
        planned = undefined;
        if (!archive || !method.isProved(archive.proof, counters)) {
          planned = { proof: counters?.fingerprint ?? null };
        } else {
          // Everything that the poll proved was visible when it began: nothing ran between it
          // and this read.
          const rows = await readRows();
          if (rows === undefined) return;
          result.proved++;
          if (rows !== archive.rows) result.missed++;
        }
      } else if (planned && kind === 'run') {
        if (planned.rows === undefined) {
          const rows = await readRows();
          if (rows !== undefined) planned.rows = rows;
          return;
        }

        const proof = method.pollsBefore ? planned.proof : ((await poll())?.fingerprint ?? null);
        archive = { proof, rows: planned.rows };
        planned = undefined;
      } else if (session) {
        await session.query(kind === 'abort' ? 'rollback' : kind).catch(() => {});
      }
    };
    for (const step of steps) await take(step);
    await Promise.all(sessions.map(session => session?.end()));

    const provedBySteps = result.proved;
    await eventually(async () => {
      await take({ kind: 'run', writer: 0 });
      return result.proved > provedBySteps;
    });
    return result;
  };
  const close = async (): Promise<void> => {
    await server.query(`drop database ${name} with (force)`);
    await server.end();
  };
  return { url, poll, run, close };
}
