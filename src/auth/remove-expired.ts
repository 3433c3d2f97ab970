import type { EntityManager } from '@mikro-orm/postgresql';

/** Runs a statement: an entity manager, or a query of a transaction. */
interface Executor {
  execute(text: string): Promise<unknown>;
}

/** Rows removed at a time. An insert adds one row, so that the tables do not grow. */
const batch = 100;

/** Deletes some expired rows. Skips rows that another transaction is using. */
export async function removeExpired(
  em: Executor,
  table: 'legacy_tokens' | 'mail_tokens' | 'registrations',
): Promise<void> {
  await em.execute(
    `delete from ${table} where hash in (
       select hash from ${table} where expires_at <= now() order by expires_at limit ${batch} for update skip locked)`,
  );
}

const isRemovable = `confirmed_at is null and disabled_at is null and invited_at is null
  and not exists (select from registrations where user_id = u.id and expires_at > now())
  and not exists (select from api_clients where user_id = u.id)`;

/**
 * Deletes some users who have not confirmed their address, and no longer can: all their registrations have expired.
 * Users who were invited, disabled, or given an API client stay. Runs in the transaction of `em`.
 *
 * The delete checks the users again, with a snapshot that is taken after they are locked. The first snapshot may be
 * older than the lock: it misses a registration that was added in between, which the delete would remove with its
 * user. After the lock none can be added, because its foreign key locks the user too.
 */
export async function removeUnconfirmed(em: EntityManager): Promise<void> {
  const users = await em.execute<{ id: string }[]>(
    `select id from users u where created_at <= now() - interval '24 hours' and ${isRemovable}
      order by created_at limit ${batch} for update skip locked`,
  );
  if (users.length === 0) return;
  const ids = `{${users.map(({ id }) => id).join(',')}}`;
  await em.execute(`delete from users u where id = any (?::bigint[]) and ${isRemovable}`, [ids]);
}
