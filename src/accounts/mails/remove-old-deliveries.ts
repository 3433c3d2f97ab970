import type { QueryControl } from '../../control/database.ts';

/** Rows removed at a time. An insert adds only one, so the tables do not grow. */
const batch = 100;

const removeOld = `
  delete from mail_deliveries where id in (
    select id from mail_deliveries
     where id = any (array(
       (select id from mail_deliveries where expires_at <= now() - interval '30 days' order by expires_at limit ${batch})
       union all
       (select id from mail_deliveries where kind = 'registration' and expires_at <= now()
         order by expires_at limit ${batch})))
       for update skip locked)`;

/**
 * Removes some deliveries whose link ended 30 days ago, and registrations that nobody can
 * confirm any more: their rows have the hash of a password. Locks rows of other users, so run
 * it last: after it, the transaction waits for nobody.
 */
export async function removeOldDeliveries(query: QueryControl): Promise<void> {
  await query('mails_remove_old', removeOld, []);
}

const isRemovable = `confirmed_at is null and disabled_at is null and invited_at is null
  and not exists (select from mail_deliveries where user_id = u.id and expires_at > now())
  and not exists (select from api_clients where user_id = u.id)`;
const findUnconfirmed = `
  select id from users u where created_at <= now() - interval '24 hours' and ${isRemovable}
   order by created_at limit ${batch} for update skip locked`;
const deleteUnconfirmed = `delete from users u where id = any ($1::bigint[]) and ${isRemovable}`;

/**
 * Deletes some users who have not confirmed their address, and no longer can: all their
 * registrations have expired. Users who were invited, disabled, or given an API client stay.
 *
 * The delete checks the users again, with a snapshot that is taken after they are locked. The
 * first snapshot may be older than the lock: it misses a registration that was added in
 * between, which the delete would remove with its user. After the lock none can be added,
 * because its foreign key locks the user too.
 */
export async function removeUnconfirmed(query: QueryControl): Promise<void> {
  const users = await query<{ id: string }>('find_unconfirmed', findUnconfirmed, []);
  if (users.length === 0) return;

  await query('delete_unconfirmed', deleteUnconfirmed, [users.map(({ id }) => id)]);
}
