import pLimit from 'p-limit';
import type pg from 'pg';
import { databaseUrl } from '../../control/server-urls.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { readSchemaState } from '../schema/schema-steps.ts';
import type { ServerFacts } from './server-facts.ts';

/**
 * Stands for the guid of a database that accepts no connection: it may hold data of a tenant.
 */
export const unknownGuid = 'unknown';

/** The identities of the orphan databases of a server. */
interface OrphanIdentities {
  /**
   * The guid of the tenant, by the name of the database; `unknown` for a database that cannot
   * be read.
   */
  readonly identities: Map<string, string>;
  /** The names of the databases that the login of the command may not connect to. */
  readonly notEntered: readonly string[];
}

/**
 * Finds the tenant whose data each orphan database has. (An orphan is one that the control
 * database does not record.) So a renamed database does not count as lost, and no repair
 * changes it. Connects to no database of which the catalog says that the server would refuse
 * it: a pooler can take 15 s to say so.
 * @param recorded names of the databases of tenants
 */
export async function readOrphanIdentities(
  adminUrl: string,
  { databases }: ServerFacts,
  recorded: ReadonlySet<string>,
): Promise<OrphanIdentities> {
  const orphans = [...databases.values()].filter(
    ({ name, broken }) => !broken && !recorded.has(name) && !isSystemDatabase(name),
  );
  const identities = new Map<string, string>();
  await pLimit(4).map(orphans, async ({ name, open, mayConnect }) => {
    const read = () => withConnection(databaseUrl(adminUrl, name), readStamp, { kind: 'doctor' });
    const guid = open && mayConnect ? await read().catch(guidOfFailure) : unknownGuid;
    if (guid !== null) identities.set(name, guid);
  });

  const notEntered = orphans.filter(({ open, mayConnect }) => open && !mayConnect);
  return { identities, notEntered: notEntered.map(({ name }) => name) };
}

function isSystemDatabase(name: string): boolean {
  return ['postgres', 'template0', 'template1'].includes(name);
}

/**
 * Returns the guid in the stamp of the connected database; null if it has none. Looks into the
 * catalog first: a server logs each statement that names a table that is not there, or that the
 * login may not read.
 */
async function readStamp(client: pg.Client): Promise<string | null> {
  const { rows } = await client.query<{ exists: boolean; isReadable: boolean }>(
    `select count(oid) = 2 as exists, coalesce(bool_and(has_table_privilege(oid, 'select')), false) as "isReadable"
       from unnest(array[to_regclass('tenant_identity'), to_regclass('migrations')]) as oid`,
  );
  if (!rows[0]?.exists) return null;

  return rows[0].isReadable ? (await readSchemaState(client)).guid : unknownGuid;
}

/** @returns null for a database that has another table of that name: it is no tenant's */
function guidOfFailure(error: unknown): string | null {
  return sqlState(error)?.startsWith('42') && sqlState(error) !== '42501' ? null : unknownGuid;
}
