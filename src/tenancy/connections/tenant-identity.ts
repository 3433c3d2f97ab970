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

interface Identity extends SchemaVersion {
  guid: string;
  isStandby: boolean;
}

/**
 * Verifies that a connection leads to the database of the expected tenant, whose schema this
 * build can serve.
 * @returns whether its server is a standby
 * @throws {TenantIdentityError | TenantVersionError}
 */
export async function verifyTenant(
  client: pg.Client,
  expected: ExpectedTenant,
): Promise<{ isStandby: boolean }> {
  const identity = client.query<Identity>(
    `select guid, schema_version as "schemaVersion", compatible_from as "compatibleFrom",
            pg_is_in_recovery() as "isStandby" from tenant_identity`,
  );
  const { rows } = await identity.catch(error => {
    const state = sqlState(error);
    if (state === '42P01') {
      throw new TenantIdentityError('the database has no identity', { cause: error });
    }
    if (state === '42703') {
      throw new TenantVersionError('the database has no version', { cause: error });
    }
    throw error;
  });

  const [found] = rows;
  if (found?.guid !== expected.guid) {
    throw new TenantIdentityError('the database belongs to another tenant');
  }
  if (!canServe(expected.head, found)) {
    throw new TenantVersionError(`the database is at ${found.schemaVersion}`);
  }

  return found;
}
