import { createHash, randomBytes } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';

type Purpose = 'confirm' | 'reset';

const lifetimes: Record<Purpose, string> = { confirm: '24 hours', reset: '1 hour' };

/**
 * Creates a token of 43 characters, valid once. It replaces the user's former token for this purpose. Only its hash is
 * stored.
 */
export async function createMailToken(
  em: EntityManager,
  user: { id: number; tenantId: number },
  purpose: Purpose,
): Promise<string> {
  const token = randomBytes(32).toString('base64url');
  await em.execute(
    `insert into mail_tokens (hash, tenant_id, user_id, purpose, expires_at)
      values (?, ?, ?, ?, now() + interval '${lifetimes[purpose]}')
      on conflict (user_id, purpose) do update
        set hash = excluded.hash, expires_at = excluded.expires_at, created_at = now()`,
    [hashOf(token), user.tenantId, user.id, purpose],
  );
  return token;
}

/**
 * Deletes a token, so that it cannot be used again.
 * @returns the id of its user; undefined when it was used, has expired, or belongs to another tenant or purpose
 */
export async function consumeMailToken(
  em: EntityManager,
  tenantId: number,
  token: string,
  purpose: Purpose,
): Promise<number | undefined> {
  const [row] = await em.execute<{ user_id: string; valid: boolean }[]>(
    `delete from mail_tokens where hash = ? and tenant_id = ? and purpose = ?
      returning user_id, expires_at > now() as valid`,
    [hashOf(token), tenantId, purpose],
  );
  return row?.valid ? Number(row.user_id) : undefined;
}

function hashOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}
