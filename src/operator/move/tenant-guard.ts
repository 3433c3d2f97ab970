import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { OperatorError } from '../../operator-error.ts';
import { quoteIdentifier, quoteLiteral } from '../../postgres/quote.ts';

/** A run that may change a tenant database, as far as no run with a greater epoch has claimed it. */
export interface DatabaseRun {
  readonly epoch: number;
  /** Stands in the place of the guid of the tenant while the database is closed: every build refuses it then. */
  readonly marker: string;
  readonly guid: string;
}

type Epoch = Pick<DatabaseRun, 'epoch'>;

/** Another run has taken over: this one must not go on. */
export class RunReplacedError extends OperatorError {
  override name = 'RunReplacedError';

  constructor() {
    super('another run works on the tenant now: this one has stopped');
  }
}

/** The connections of moves have this name (`timeLimits`). */
const otherRuns = `
  select pg_terminate_backend(pid) from pg_stat_activity
   where datname = current_database() and application_name like 'backoffice-move%' and pid <> pg_backend_pid()`;
const maxEndMs = 5_000;
const pollMs = 10;

/**
 * Shuts earlier runs out of the connected database: ends their connections, and records the epoch of this run, which
 * every later change compares (`guardedChange`).
 * @param check runs in the transaction that records the epoch. @throws to leave the database as it is
 * @throws {RunReplacedError} when a later run has claimed the database
 */
export async function claimDatabase(client: pg.Client, run: Epoch, check = async () => {}): Promise<void> {
  for (const deadline = performance.now() + maxEndMs; ; await sleep(pollMs)) {
    if ((await client.query(otherRuns)).rowCount === 0) break;
    if (performance.now() > deadline) throw new OperatorError('a connection of an earlier run could not be ended');
  }
  await guardedChange(client, run, async () => {
    await check();
    await client.query(`comment on table tenant_identity is ${quoteLiteral(`move ${run.epoch}`)}`);
  });
}

/**
 * Runs `change` in a transaction of the connected database, in which no other run changes it.
 * @throws {RunReplacedError} when a later run has claimed the database
 */
export async function guardedChange<T>(client: pg.Client, run: Epoch, change: () => Promise<T>): Promise<T> {
  await client.query('begin');
  try {
    await client.query('select from tenant_identity for update');
    if ((await readClaim(client)) > run.epoch) throw new RunReplacedError();
    const result = await change();
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch(() => {});
    throw error;
  }
}

/** Returns the greatest epoch that has claimed the connected database; 0 if none has. */
export async function readClaim(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ claim: string | null }>(
    `select obj_description('tenant_identity'::regclass, 'pg_class') as claim`,
  );
  return Number(/^move (\d+)$/.exec(rows[0]?.claim ?? '')?.[1] ?? 0);
}

/** The guid in the stamp of a database that is going to be dropped. No tenant has it. */
export const nobody = '00000000-0000-0000-0000-000000000000';

/**
 * Lets the stamp of the connected database name nobody, for ever: no process serves it, and no run uses it any more.
 * @throws {OperatorError} when it belongs to another tenant than `guid`
 * @throws {RunReplacedError} when a later run has claimed the database
 */
export async function condemnDatabase(client: pg.Client, run: Epoch, guid: string): Promise<void> {
  await guardedChange(client, run, async () => {
    await client.query('update tenant_identity set guid = $1 where guid = $2', [nobody, guid]);
    const { rowCount } = await client.query('select from tenant_identity where guid <> $1', [nobody]);
    if (rowCount) throw new OperatorError('its database belongs to another tenant now: nothing was dropped');
  });
}

/**
 * Closes a tenant database in one transaction: its stamp names no tenant any more, and the tenant's role may not log
 * in. A connection that was verified before the commit is among the sessions of the role (`endSessions`) afterwards;
 * every later one is refused.
 * @throws {OperatorError} when the database belongs to somebody else
 */
export async function closeDatabase(client: pg.Client, run: DatabaseRun, role: string): Promise<void> {
  await guardedChange(client, run, async () => {
    await stamp(client, run, run.marker);
    await client.query(`alter role ${quoteIdentifier(role)} nologin`);
  });
}

/** Opens a tenant database, as `closeDatabase` has closed it. */
export async function openDatabase(client: pg.Client, run: DatabaseRun, role: string): Promise<void> {
  await guardedChange(client, run, async () => {
    await stamp(client, run, run.guid);
    await client.query(`alter role ${quoteIdentifier(role)} login`);
  });
}

/** Lets the stamp of the connected database name the tenant, or the marker. */
export async function stamp(client: pg.Client, { guid, marker }: DatabaseRun, value: string): Promise<void> {
  const { rowCount } = await client.query('update tenant_identity set guid = $1 where guid in ($2, $3)', [
    value,
    guid,
    marker,
  ]);
  if (!rowCount) throw new OperatorError('the database belongs to another tenant: nothing was changed in it');
}
