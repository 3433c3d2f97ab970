import { type ControlDatabase, queryControl } from './database.ts';
import type { LegacyTokenRecord } from './records.ts';

/**
 * The cache key of a legacy token: its hash in the notation of PostgreSQL for `bytea`, which the change feed uses too.
 */
export function legacyTokenKey(hash: string): string {
  return `\\x${hash}`;
}

const tokenByKey = `
  select t.guid as "tenantGuid", user_id::float8 as "userId", entity_type as "entityType",
         (extract(epoch from expires_at) * 1000)::float8 as "expiresAt", revoked_at is not null as revoked
    from legacy_tokens join tenants t on t.id = tenant_id where hash = $1::bytea`;

export async function loadLegacyToken(key: string, control: ControlDatabase): Promise<LegacyTokenRecord | undefined> {
  const [token] = await queryControl<LegacyTokenRecord>(control, 'legacy_token_by_key', tokenByKey, [key]);
  return token;
}
