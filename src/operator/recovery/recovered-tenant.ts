import type pg from 'pg';
import type { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { connectFailure } from '../../lib/log/postgres-causes.ts';
import { connectionConfig } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { SessionClient } from '../../lib/postgres/session-client.ts';
import type { EarlierData } from '../databases/copy/fill-database.ts';
import { copyTables } from '../databases/copy/fill-tables.ts';
import { readOwnBytes } from '../databases/copy/room.ts';
import { closedStamp } from '../databases/store/database-stamp.ts';
import { readSchemaState } from '../schema/schema-steps.ts';
import { inSnapshot } from '../schema/snapshot.ts';
import { canonicalTextSettings, identityTables } from '../schema/tenant-tables.ts';

interface RecoveredOptions {
  /** The URL of the server on which a recovered copy of a server of the tenant runs. */
  readonly url: string;
  /** The names that the database may have there. */
  readonly names: readonly string[];
  /** The time to which the server was recovered, in the form of PostgreSQL, if it is known. */
  readonly until?: string | undefined;
  /** Called at the beginning of each step, with its name. */
  readonly onStep: (step: string) => void;
}

/**
 * Runs `restore` on the data that a tenant has on a recovered server, in one snapshot. The
 * database is found by its names, and recognised by its stamp, also if a run was exchanging it
 * at that moment.
 * @throws {OperatorError} when the server has no database of the tenant, or one whose data can
 *   be later than `until`
 */
export async function restoreRecovered<T>(
  source: Tenant,
  { url, names, until, onStep }: RecoveredOptions,
  restore: (data: EarlierData) => Promise<T>,
): Promise<T> {
  onStep(`looking for ${source.slug} on the recovered server`);
  const database = await findRecovered(url, source, names);

  return onRecoveredServer(url, database, async from => {
    const { applied } = await readSchemaState(from);
    const lastChange = await readLastChange(from);
    if (until !== undefined) await requireNotLater(from, until, lastChange);

    onStep(`copying ${source.slug} from ${database}`);
    return restore({
      description: `recovered ${database}, last change ${lastChange ?? 'unknown'}`,
      schemaVersion: applied.at(-1) ?? '',
      bytes: await readOwnBytes(from),
      fill: target => copyTables(from, target, identityTables),
    });
  });
}

/**
 * Checks that the data of a recovered server is not later than a time, as far as the server
 * shows it: a service that recovers servers by itself shows less than PostgreSQL does.
 * @param until in the form of PostgreSQL
 * @param lastChange in ISO 8601, to the microsecond; null: there was none
 * @throws {OperatorError} when the server still recovers, was recovered to a later time, or has
 *   a later change
 */
async function requireNotLater(
  from: pg.Client,
  until: string,
  lastChange: string | null,
): Promise<void> {
  const { rows } = await from.query<{
    recovers: boolean;
    target: string | null;
    isLater: boolean | null;
  }>(
    `select pg_is_in_recovery() and pg_get_wal_replay_pause_state() <> 'paused' as recovers,
            (select setting from pg_settings
              where name = 'recovery_target_time'
                and nullif(setting, '')::timestamptz > $1::timestamptz) as target,
            $2::timestamptz > $1::timestamptz as "isLater"`,
    [until, lastChange],
  );
  const { recovers, target, isLater } = rows[0] ?? {};

  if (recovers) {
    throw new OperatorError('The recovered server is still recovering: nothing was changed');
  }
  if (target) {
    throw new OperatorError(
      `The recovered server was recovered to ${target}, which is later than ${until}: nothing was changed`,
    );
  }
  if (isLater) {
    throw new OperatorError(
      `The recovered server has a change of ${lastChange}, which is later than ${until}: nothing was changed`,
    );
  }
}

/**
 * Returns the time of the newest entry of the audit log, about that of the last change: in ISO
 * 8601, to the microsecond; null without an entry.
 */
async function readLastChange(from: pg.Client): Promise<string | null> {
  const { rows } = await from.query<{ at: string }>(
    `select to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at
       from audit_log order by id desc limit 1`,
  );
  return rows[0]?.at ?? null;
}

/** Returns the names of all databases that a tenant has had at any time. */
export async function namesOf({ statements }: Installation, { id }: Tenant): Promise<string[]> {
  const { rows } = await statements.query<{ name: string }>(
    'select database_name as name from tenant_databases where tenant_id = $1',
    [id],
  );
  return rows.map(({ name }) => name);
}

/**
 * @throws {OperatorError} unless exactly one of the databases with these names is the tenant's
 */
async function findRecovered(
  url: string,
  { slug, guid }: Tenant,
  names: readonly string[],
): Promise<string> {
  const present = await onRecoveredServer(url, 'postgres', async client => {
    const { rows } = await client.query<{ name: string }>(
      'select datname as name from pg_database where datname = any ($1) order by 1',
      [names],
    );
    return rows.map(({ name }) => name);
  });

  const found: Record<Kind, string[]> = { open: [], closed: [], foreign: [], unreadable: [] };
  for (const name of present) found[await kindOf(url, name, guid)].push(name);

  const [own = '', ...others] = found.open.length > 0 ? found.open : found.closed;
  if (own !== '' && others.length === 0) return own;

  const none = `The recovered server has no database of ${slug} that can be read: nothing was changed`;
  if (own !== '') {
    throw new OperatorError(
      `The recovered server has several closed databases of ${slug}, and none that served it: ` +
        `${found.closed.join(', ')}. Recover to another moment`,
    );
  }

  if (found.foreign.length > 0) {
    throw new OperatorError(
      `${none}. Its database ${found.foreign.join(', ')} belongs to another tenant, or to another installation`,
    );
  }

  if (found.unreadable.length > 0) {
    throw new OperatorError(
      `${none}. Its database ${found.unreadable.join(', ')} accepts no connections: it was being made or dropped at that ` +
        'moment, or was not recovered. Recover to another moment',
    );
  }

  throw new OperatorError(
    `${none}. It is a copy of another server, or of a moment at which ${slug} was not there. ` +
      `The names that were looked for: ${names.join(', ')}`,
  );
}

type Kind = 'open' | 'closed' | 'foreign' | 'unreadable';

/**
 * SQLSTATEs of a database that is being made or dropped, or whose files are missing or zeros.
 */
const unreadable = /^(55000|3D000|58...|XX...)$/;

async function kindOf(url: string, name: string, tenant: string): Promise<Kind> {
  try {
    const { guid } = await onRecoveredServer(url, name, readSchemaState);
    if (guid === tenant) return 'open';
    return guid === closedStamp(tenant) ? 'closed' : 'foreign';
  } catch (error) {
    const cause = error instanceof OperatorError ? error.cause : error;
    if (!unreadable.test(sqlState(cause) ?? '')) throw error;
    return 'unreadable';
  }
}

const readOnlySettings = { ...canonicalTextSettings, default_transaction_read_only: 'on' };

/**
 * Runs `work` on a database of a server on which a recovered copy of a server of the
 * installation runs, in one snapshot. Nothing is written there. The connection does not count
 * against the connection budget: the service does not use that server.
 * @param url of any database of the server, with a login that may read all tables
 * @throws {OperatorError} when the server cannot be used
 */
export async function onRecoveredServer<T>(
  url: string,
  database: string,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new SessionClient(
    connectionConfig(databaseUrl(url, database), 'operator', readOnlySettings),
  );
  client.on('error', () => {}); // the running query rejects
  try {
    await client.connect().catch(cause => {
      const reason = connectFailure(cause);
      if (reason === undefined) throw cause;
      throw new OperatorError(`The recovered server cannot be used: ${reason}`, { cause });
    });
    return await inSnapshot(client, () => work(client));
  } finally {
    await client.end().catch(() => {});
  }
}
