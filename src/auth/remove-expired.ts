import type { EntityManager } from '@mikro-orm/postgresql';

/** Rows removed at a time. An insert adds one row, so that the tables do not grow. */
const batch = 100;

/** Deletes some expired rows. Skips rows that another transaction is using. */
export async function removeExpired(
  em: EntityManager,
  table: 'legacy_tokens' | 'mail_tokens' | 'registrations',
): Promise<void> {
  await em.execute(
    `delete from ${table} where hash in (
       select hash from ${table} where expires_at <= now() order by expires_at limit ${batch} for update skip locked)`,
  );
}

/**
 * Deletes some users who have not confirmed their address, and no longer can: all their registrations have expired.
 * Users whom an operator has disabled, or given an API client, stay.
 */
export async function removeUnconfirmed(em: EntityManager): Promise<void> {
  await em.execute(
    `delete from users where id in (
       select id from users u
        where confirmed_at is null and created_at <= now() - interval '24 hours' and disabled_at is null
          and not exists (select from registrations where user_id = u.id and expires_at > now())
          and not exists (select from api_clients where user_id = u.id)
        order by created_at limit ${batch} for update skip locked)`,
  );
}
