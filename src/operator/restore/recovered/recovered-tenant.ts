import type { Tenant } from '../../../control/fleet-entities.ts';
import type { Installation } from '../../../installation.ts';
import { OperatorError } from '../../../operator-error.ts';
import { sqlState } from '../../../postgres/database-error.ts';
import { closedStamp } from '../../databases/database-guard.ts';
import type { EarlierData } from '../../databases/fill-database.ts';
import { readSchemaState } from '../../schema/schema-steps.ts';
import { identityTables } from '../../tenant-tables.ts';
import { copyAll } from './copy-all.ts';
import { onRecoveredServer } from './recovered-server.ts';

interface RecoveredOptions {
  /** Of the server on which a recovered copy of a server of the tenant runs. */
  readonly url: string;
  /** The moment that the server has recovered to, in the form of PostgreSQL, if that is known. */
  readonly at?: string | undefined;
  /** Called at the beginning of each step, with its name. */
  readonly onStep?: (step: string) => void;
}

/**
 * Runs `restore` on the data that a tenant has on a recovered server, in one snapshot. Its database is found by the
 * names that it had, at the moment if that is known, and recognised by its stamp, also if a run was exchanging it then.
 * @throws {OperatorError} when the server has no database of the tenant, or is not recovered to the moment
 */
export async function restoreRecovered<T>(
  installation: Installation,
  source: Tenant,
  { url, at, onStep = () => {} }: RecoveredOptions,
  restore: (data: EarlierData) => Promise<T>,
): Promise<T> {
  onStep(`looking for ${source.slug} on the recovered server`);
  const database = await findRecovered(url, source, await namesOf(installation, source, at));
  return onRecoveredServer(url, database, async from => {
    const { applied } = await readSchemaState(from);
    const { rows } = await from.query<{ at: Date }>('select created_at as at from audit_log order by id desc limit 1');
    const lastChange = rows[0]?.at.toISOString();
    onStep(`copying ${source.slug} from ${database}`);
    return restore({
      description: at ?? `recovered ${database}, last change ${lastChange ?? 'unknown'}`,
      schemaVersion: applied.at(-1) ?? '',
      fill: target => copyAll(from, target, identityTables),
    });
  });
}

/** Returns the names of the database that a tenant had at a moment, or of all databases that it had at any time. */
async function namesOf(
  { statements }: Installation,
  { id, server: { prefix }, databaseName }: Tenant,
  at: string | undefined,
): Promise<string[]> {
  const rows = await statements.execute<{ name: string }[]>(
    `select database_name as name from tenant_databases
      where tenant_id = ? and (?::timestamptz is null or current_during @> ?::timestamptz)`,
    [id, at ?? null, at ?? null],
  );
  const names = rows.length > 0 ? rows.map(({ name }) => name) : [databaseName];
  return [...new Set([...names, `${prefix}_warm_${id}`])]; // earlier builds renamed a warm database
}

/** @throws {OperatorError} unless exactly one of the databases with these names is the tenant's */
async function findRecovered(url: string, { slug, guid }: Tenant, names: readonly string[]): Promise<string> {
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
  if (own !== '')
    throw new OperatorError(
      `The recovered server has several closed databases of ${slug}, and none that served it: ` +
        `${found.closed.join(', ')}. Recover to another moment`,
    );
  if (found.foreign.length > 0)
    throw new OperatorError(
      `${none}. Its database ${found.foreign.join(', ')} belongs to another tenant, or to another installation`,
    );
  if (found.unreadable.length > 0)
    throw new OperatorError(
      `${none}. Its database ${found.unreadable.join(', ')} accepts no connections: it was being made or dropped at that ` +
        'moment, or was not recovered. Recover to another moment',
    );
  throw new OperatorError(
    `${none}. It is a copy of another server, or of a moment at which ${slug} was not there. ` +
      `The names that were looked for: ${names.join(', ')}`,
  );
}

type Kind = 'open' | 'closed' | 'foreign' | 'unreadable';

/** SQLSTATEs of a database that is being made or dropped, or whose files are missing or zeros. */
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
