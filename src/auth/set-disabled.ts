import type { QueryControl } from '../control/database.ts';
import { revokeSessionsOf } from './sessions.ts';

const setDisabledAt = `
  update users set disabled_at = case when $2::boolean then now() end
   where id = $1 and (disabled_at is not null) <> $2::boolean`;
const deleteTokens = 'delete from mail_tokens where user_id = $1';
const deleteRegistrations = 'delete from registrations where user_id = $1';

/**
 * Disables a user and ends all sessions, or enables the user. Either makes every link void that the user has received
 * by mail: invitation, reset and confirmation. The user is changed before the tokens, in the order of
 * `usePasswordToken`.
 */
export async function setDisabled(query: QueryControl, userId: number, isDisabled: boolean): Promise<void> {
  await query('set_disabled', setDisabledAt, [userId, isDisabled]);
  await query('delete_mail_tokens', deleteTokens, [userId]);
  await query('delete_registrations', deleteRegistrations, [userId]);
  if (isDisabled) await revokeSessionsOf(query, userId, 'user_disabled');
}
