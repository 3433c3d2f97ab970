import type { QueryControl } from '../../control/database.ts';
import { addDisabledNotice } from '../mails/notice-requests.ts';
import { withdrawLinks } from '../mails/use-link.ts';
import { revokeSessionsOf } from './sessions.ts';

const setDisabledAt = `
  update users set disabled_at = case when $2::boolean then now() end
   where id = $1 and (disabled_at is not null) <> $2::boolean
  returning id`;

/**
 * Disables a user and ends all sessions, or enables the user. Both make every link void that
 * the user has received by mail: invitation, reset and confirmation. The user is changed before
 * the links, in the order of `useLink`. The administrators learn by mail what a disabled person
 * has made, and goes on.
 */
export async function setUserDisabled(
  query: QueryControl,
  userId: number,
  isDisabled: boolean,
): Promise<void> {
  const changed = await query('set_disabled', setDisabledAt, [userId, isDisabled]);
  await withdrawLinks(query, userId);
  if (isDisabled) await revokeSessionsOf(query, userId, 'user_disabled');
  if (isDisabled && changed.length > 0) await addDisabledNotice(query, userId);
}
