import { LegacyToken } from './client-entities.ts';
import type { ControlDatabase } from './database.ts';
import type { LegacyTokenRecord } from './records.ts';

const byteaPrefix = '\\x';

/**
 * The cache key of a legacy token: its hash in the notation of PostgreSQL for `bytea`, which the change feed uses too.
 */
export function legacyTokenKey(hash: string): string {
  return byteaPrefix + hash;
}

export async function loadLegacyToken(key: string, control: ControlDatabase): Promise<LegacyTokenRecord | undefined> {
  const hash = Buffer.from(key.slice(byteaPrefix.length), 'hex');
  const token = await control.em.fork().findOne(LegacyToken, { hash }, { populate: ['tenant'] });
  if (!token) return undefined;
  const { tenant, user, entityType, expiresAt, revokedAt } = token;
  return {
    tenantGuid: tenant.guid,
    userId: user.id,
    entityType: entityType ?? null,
    expiresAt: expiresAt.getTime(),
    revoked: revokedAt !== null,
  };
}
