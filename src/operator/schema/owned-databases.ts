import type pg from 'pg';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import { endOtherSessions, sessionsLeft } from './other-sessions.ts';

/** The SQLSTATE of a database that somebody uses. */
const inUse = '55006';
const insufficientPrivilege = '42501';

/**
 * Creates a database that no other login but superusers can connect to: not even between its
 * creation and the change of its privileges, when an agent of monitoring that looks for new
 * databases would connect.
 * @param options of `create database`, such as its template
 */
export async function createPrivate(
  client: pg.Client,
  name: string,
  options: string,
): Promise<void> {
  await client.query(`create database ${quote(name)} ${options} allow_connections false`);
  await client.query(
    `revoke all on database ${quote(name)} from public; alter database ${quote(name)} allow_connections true`,
  );
}

/**
 * Drops a database of ours, if it exists, with its replication slots, and ends all sessions in
 * it, the readers of the slots among them. It accepts no connections from the first step on, so
 * that an agent that connects again at once does not come back.
 * @param client connected to another database of the server, with the rights of the owner
 * @throws {OperatorError} that names what still uses the database, and what to do
 */
export async function dropOwned(client: pg.Client, name: string): Promise<void> {
  // A database that is half dropped can only be dropped: PostgreSQL ends a session that alters
  // it.
  const { rowCount: isOpen } = await client.query(
    'select from pg_database where datname = $1 and datallowconn and datconnlimit <> -2',
    [name],
  );
  // A session of these can be ended only by a login that connects to the database.
  await requireNoUsers(client, name, 'dropped');

  try {
    if (isOpen) await client.query(`alter database ${quote(name)} allow_connections false`);
    await endSlotReaders(client, name);

    await client.query(`drop database if exists ${quote(name)} with (force)`).catch(async error => {
      if (![inUse, insufficientPrivilege].includes(sqlState(error) ?? '')) throw error;

      await requireUnused(client, name, 'dropped', error);
      // Without `force`, PostgreSQL ends the worker of autovacuum by itself, and waits up to 5 s.
      // With it, it requires the right to do so, which only superusers have.
      await client.query(`drop database if exists ${quote(name)}`);
    });
  } catch (error) {
    throw sqlState(error) === insufficientPrivilege ? await notOurs(client, name, error) : error;
  }
}

/**
 * Ends the sessions in a database if one of them reads a replication slot: PostgreSQL drops the
 * slots of a database together with it, but ends no reader of one, also not `with (force)`.
 * @throws {OperatorError} when sessions are left
 */
async function endSlotReaders(client: pg.Client, name: string): Promise<void> {
  const { rowCount: isRead } = await client.query(
    'select from pg_replication_slots where database = $1 and active limit 1',
    [name],
  );
  if (!isRead) return;

  const left = await endOtherSessions(client, name);
  if (left.length > 0) throw sessionsLeft(client, `Database ${name} could not be dropped`, left);
}

/** Returns the error of a drop by a login that does not own the database. */
async function notOurs(client: pg.Client, name: string, cause: unknown): Promise<OperatorError> {
  const { rows } = await client.query<{ owner: string }>(
    'select pg_get_userbyid(datdba) as owner from pg_database where datname = $1',
    [name],
  );

  return new OperatorError(
    `Database ${name} could not be dropped: its owner is ${rows[0]?.owner ?? 'unknown'}, and login ${client.user} may ` +
      'not drop it. Drop it as its owner or as a superuser, and run the command again: ' +
      `drop database ${quote(name)} with (force)`,
    { cause },
  );
}

/**
 * Gives a database of ours another name. Its sessions are ended first: those of a reader, and
 * those of the own login that a pooler in session mode keeps for the next client.
 * @param client connected to another database of the server
 * @throws {OperatorError} that names what still uses the database, and what to do
 */
export async function renameOwned(client: pg.Client, from: string, to: string): Promise<void> {
  const rename = () => client.query(`alter database ${quote(from)} rename to ${quote(to)}`);
  await endOtherSessions(client, from);

  await rename().catch(async error => {
    if (sqlState(error) !== inUse) throw error;

    await requireUnused(client, from, 'renamed', error);
    await rename();
  });
}

/**
 * Ends the sessions in a database.
 * @param cause the error of the change
 * @throws {OperatorError} when sessions are left, or something else uses it
 */
async function requireUnused(
  client: pg.Client,
  name: string,
  change: string,
  cause: unknown,
): Promise<void> {
  const left = await endOtherSessions(client, name);
  if (left.length > 0) throw sessionsLeft(client, `Database ${name} could not be ${change}`, left);

  await requireNoUsers(client, name, change, cause);
}

/** Objects of the server that use a database, beside sessions, and that end only inside it. */
interface Users {
  readonly prepared: string[];
  readonly subscriptions: number;
}

/** @throws {OperatorError} when something uses a database beside sessions */
async function requireNoUsers(
  client: pg.Client,
  name: string,
  change: string,
  cause?: unknown,
): Promise<void> {
  const { rows } = await client.query<Users>(
    `select array(select gid from pg_prepared_xacts where database = $1 order by 1) as prepared,
            (select count(*)::int from pg_subscription
               join pg_database d on d.oid = subdbid where datname = $1) as subscriptions`,
    [name],
  );

  const next = rows[0] && nextStep(rows[0]);
  if (next) {
    throw new OperatorError(
      `Database ${name} could not be ${change}: ${next}. Then run the command again`,
      { cause },
    );
  }
}

function nextStep({ prepared, subscriptions }: Users): string | undefined {
  if (prepared.length > 0) {
    return `it has prepared transactions (${prepared.join(', ')}). End each of them in it: rollback prepared '…'`;
  }
  if (subscriptions > 0) {
    return (
      'it has a subscription. In it, for each of them: alter subscription … disable; ' +
      'alter subscription … set (slot_name = none); drop subscription …'
    );
  }

  return undefined;
}
