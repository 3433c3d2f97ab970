import { createHash, randomBytes } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';

type Purpose = 'confirm' | 'reset';

const lifetimes: Record<Purpose, string> = { confirm: '24 hours', reset: '1 hour' };

/** Makes a token for a user, good once, and the only good one of its purpose: 43 characters, of which only a hash is kept. */
export async function createMailToken(
  em: EntityManager,
  user: { id: number; tenantId: number },
  purpose: Purpose,
): Promise<string> {
  const token = randomBytes(32).toString('base64url');
  await em.execute(
    `insert into mail_tokens (hash, tenant_id, user_id, purpose, expires_at) values (?, ?, ?, ?, now() + interval '${lifetimes[purpose]}')
      on conflict (user_id, purpose) do update
        set hash = excluded.hash, expires_at = excluded.expires_at, created_at = now()`,
    [hashOf(token), user.tenantId, user.id, purpose],
  );
  return token;
}

/** Uses a token up. @returns the id of its user; undefined when it was used, has expired, or is of another tenant or purpose */
export async function consumeMailToken(
  em: EntityManager,
  tenantId: number,
  token: string,
  purpose: Purpose,
): Promise<number | undefined> {
  const [row] = await em.execute<{ user_id: string; good: boolean }[]>(
    `delete from mail_tokens where hash = ? and tenant_id = ? and purpose = ? returning user_id, expires_at > now() as good`,
    [hashOf(token), tenantId, purpose],
  );
  return row?.good ? Number(row.user_id) : undefined;
}

function hashOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}
