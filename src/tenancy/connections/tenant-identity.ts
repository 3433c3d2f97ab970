import type pg from 'pg';
import { canServe, type SchemaVersion } from '../../control/schema-version.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';

/**
 * The facts that a new connection must find inside the database: the tenant, and a schema that
 * the build can serve.
 */
export interface ExpectedTenant {
  readonly guid: string;
  /** The last tenant migration of this build. */
  readonly head: string;
}

/** The database belongs to another tenant or to none: nothing that it returns may be used. */
class TenantIdentityError extends Error {
  override name = 'TenantIdentityError';
  readonly code = 'TENANT_IDENTITY';
}

/** The schema of the database is at a version that this build cannot serve. */
class TenantVersionError extends Error {
  override name = 'TenantVersionError';
  readonly code = 'TENANT_VERSION';
}

/** The database gets its rows from another one, which is the one that serves the tenant. */
class TenantReplicatedError extends Error {
  override name = 'TenantReplicatedError';
  readonly code = 'TENANT_REPLICATED';
}

interface Identity extends SchemaVersion {
  guid: string;
  isStandby: boolean;
  isReadOnly: boolean;
  /** True if an enabled subscription writes to a database of the cluster. */
  hasSubscriptions: boolean;
  /**
   * True if the transaction ids in the database come from the cluster of the connection; null:
   * the login may not read which one that is.
   */
  isOfCluster: boolean | null;
}

/** Selects the enabled subscriptions that write to the connected database. */
export const enabledSubscriptions = `
  select subname::text as name from pg_subscription join pg_database d on d.oid = subdbid
   where subenabled and datname = current_database() order by subname`;

/** The part of a pool that outlives its connections. */
export interface EnteredCluster {
  /** True once the transaction ids in the database were compared with the counter. */
  isEntered: boolean;
  /** True once the login was seen to be one that may read which cluster it is. */
  mayRead: boolean;
}

/**
 * Selects the identity of the database. The statement names `enter_cluster`, which ends other
 * transactions of the login.
 * @param isOfCluster SQL
 */
const identityText = (isOfCluster: string): string =>
  `select guid, schema_version as "schemaVersion", compatible_from as "compatibleFrom",
          pg_is_in_recovery() as "isStandby", current_setting('transaction_read_only')::boolean as "isReadOnly",
          exists (select from pg_subscription where subenabled) as "hasSubscriptions",
          ${isOfCluster} as "isOfCluster" -- else enter_cluster()
     from tenant_identity`;

/** Costs a tenth of a millisecond less, and fails for a login that may not read the cluster. */
const identityOfReader = identityText(
  'system_identifier is not distinct from (select c.system_identifier from pg_control_system() c)',
);
const identityOfAnyone = identityText(`
  case when has_function_privilege('pg_control_system()', 'execute')
       then system_identifier is not distinct from cluster_identifier() end`);

/**
 * Verifies that a connection leads to the database of the expected tenant, whose schema this
 * build can serve. If the database has come to another cluster of PostgreSQL, the transaction
 * ids in it are compared with the counter there: see I1 of `readChanges`. Nothing is changed on
 * a standby, and on a server that is read-only for the login; the session stays read-only then,
 * also when the server takes writes.
 * @returns whether its server is a standby, and whether the ids were compared: otherwise another
 *   connection has to compare them as soon as the server takes writes
 * @throws {TenantIdentityError | TenantVersionError | TenantReplicatedError}
 */
export async function verifyTenant(
  client: pg.Client,
  expected: ExpectedTenant,
  cluster: EnteredCluster,
): Promise<{ isStandby: boolean; isEntered: boolean }> {
  const found = await readIdentity(client, cluster);
  if (found?.guid !== expected.guid) {
    throw new TenantIdentityError('the database belongs to another tenant');
  }
  if (!canServe(expected.head, found)) {
    throw new TenantVersionError(`the database is at ${found.schemaVersion}`);
  }
  if (found.hasSubscriptions) await requireNoSubscription(client);

  const { isStandby, isReadOnly, isOfCluster } = found;
  const isEntered = isOfCluster ?? cluster.isEntered;
  if (isEntered) return { isStandby, isEntered };

  if (isStandby || isReadOnly) {
    await client.query('set default_transaction_read_only = on');
    return { isStandby, isEntered };
  }

  await client.query('select enter_cluster()');
  cluster.isEntered = true;
  return { isStandby, isEntered: true };
}

/** @throws {TenantReplicatedError} when an enabled subscription writes to the database */
async function requireNoSubscription(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ name: string }>(enabledSubscriptions);
  const [found] = rows;
  if (found) throw new TenantReplicatedError(`subscription ${found.name} writes to the database`);
}

async function readIdentity(
  client: pg.Client,
  cluster: EnteredCluster,
): Promise<Identity | undefined> {
  const text = cluster.mayRead ? identityOfReader : identityOfAnyone;

  try {
    const [found] = (await client.query<Identity>(text)).rows;
    cluster.mayRead = typeof found?.isOfCluster === 'boolean';

    return found;
  } catch (error) {
    cluster.mayRead = false; // the right may have been revoked: the next connection asks
    const state = sqlState(error);
    if (state === '42P01') {
      throw new TenantIdentityError('the database has no identity', { cause: error });
    }
    if (state === '42703' || state === '42883') {
      throw new TenantVersionError('the database has no version', { cause: error });
    }
    throw error;
  }
}
