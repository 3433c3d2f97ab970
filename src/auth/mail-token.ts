import { createHash, randomBytes } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import type { QueryControl } from '../control/database.ts';
import { removeExpired } from './remove-expired.ts';

/** Creates a random token of 43 characters for a mail. Only its hash is stored. */
export function createToken(): string {
  return randomBytes(32).toString('base64url');
}

/**
 * Creates a token that resets a password: valid once, for one hour. It replaces the user's former token.
 * Also removes expired tokens.
 */
export async function createResetToken(em: EntityManager, user: { id: number; tenantId: number }): Promise<string> {
  const token = createToken();
  await removeExpired(em, 'mail_tokens');
  await em.execute(
    `insert into mail_tokens (hash, tenant_id, user_id, purpose, expires_at)
      values (?, ?, ?, 'reset', now() + interval '1 hour')
      on conflict (user_id, purpose) do update
        set hash = excluded.hash, expires_at = excluded.expires_at, created_at = now()`,
    [hashOf(token), user.tenantId, user.id],
  );
  return token;
}

const deleteResetToken = `
  delete from mail_tokens where hash = $1 and tenant_id = $2 and purpose = 'reset'
  returning user_id, expires_at > now() as valid`;

/**
 * Deletes a token that resets a password, so that it cannot be used again.
 * @returns the id of its user; undefined when it was used, has expired, or belongs to another tenant
 */
export async function consumeResetToken(
  query: QueryControl,
  tenantId: number,
  token: string,
): Promise<number | undefined> {
  const [row] = await query<{ user_id: string; valid: boolean }>('consume_reset_token', deleteResetToken, [
    hashOf(token),
    tenantId,
  ]);
  return row?.valid ? Number(row.user_id) : undefined;
}

export function hashOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}
