import type { QueryControl } from '../../control/database.ts';

/** The identity at a provider, by which a person logs in. */
export interface ProvedIdentity {
  readonly id: number;
  /** The session at the provider, which a logout token names; null: it has no name. */
  readonly providerSid: string | null;
  /** True if the provider has asked for a second factor, as its row says. */
  readonly isFactor: boolean;
}

const markUsed = `
  update identities i set last_used_at = now()
    from identity_providers p
   where i.id = $1 and i.tenant_id = $2 and i.user_id = $3 and i.held_at is null
     and ($4::float8 is null or i.logged_out_at is null or i.logged_out_at < to_timestamp($4))
     and p.tenant_id = i.tenant_id and p.id = i.provider_id and p.is_enabled
  returning i.id`;

/**
 * Uses an identity in the transaction that opens its session, which has locked the user. Locks
 * its row: who unlinks it waits, and ends the session.
 * @param issuedAt of its ID token, in seconds since 1970; undefined for a login that waits for
 *   its second factor, which a logout has removed
 * @returns false when it is gone or held, its provider is disabled, or its person was logged out
 *   there since the token was issued
 */
export async function takeIdentity(
  query: QueryControl,
  identityId: number,
  { tenantId, userId }: { readonly tenantId: number; readonly userId: number },
  issuedAt?: number,
): Promise<boolean> {
  const values = [identityId, tenantId, userId, issuedAt ?? null];

  return (await query('use_identity', markUsed, values)).length > 0;
}
