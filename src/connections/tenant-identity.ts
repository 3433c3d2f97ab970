import type pg from 'pg';
import { sqlState } from '../postgres/database-error.ts';

/** The tenant and the schema version that a new connection must find inside the database. */
export interface ExpectedTenant {
  readonly guid: string;
  readonly schemaVersion: string;
}

/** The database belongs to another tenant or to none: nothing that it returns may be used. */
class TenantIdentityError extends Error {
  override name = 'TenantIdentityError';
  readonly code = 'TENANT_IDENTITY';
}

/** The schema of the database is at another version than this build. */
class TenantVersionError extends Error {
  override name = 'TenantVersionError';
  readonly code = 'TENANT_VERSION';
}

/**
 * Verifies that a connection leads to the database of the expected tenant, at the expected schema version.
 * @throws {TenantIdentityError | TenantVersionError}
 */
export async function verifyTenant(client: pg.Client, expected: ExpectedTenant): Promise<void> {
  const identity = client.query<{ guid: string; version: string | null }>(
    'select guid, schema_version as version from tenant_identity',
  );
  const { rows } = await identity.catch(error => {
    const state = sqlState(error);
    if (state === '42P01') throw new TenantIdentityError('the database has no identity', { cause: error });
    if (state === '42703') throw new TenantVersionError('the database has no version', { cause: error });
    throw error;
  });
  if (rows[0]?.guid !== expected.guid) throw new TenantIdentityError('the database belongs to another tenant');
  if (rows[0].version !== expected.schemaVersion) throw new TenantVersionError(`the database is at ${rows[0].version}`);
}
