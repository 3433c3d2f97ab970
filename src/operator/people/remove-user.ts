import { revokeSessionsOf, unexpired } from '../../auth/sessions.ts';
import type { Installation } from '../../installation.ts';
import type { PeopleTransaction } from '../../people/change-people.ts';
import { noSuchUser } from '../tenants/read-users.ts';
import { changePeopleOf } from './change-people-of.ts';
import { findUser } from './users.ts';

/** A user, and what ends when the user is removed. */
export interface UserRemoval {
  guid: string;
  email: string;
  role: string;
  scope: string;
  /** Open sessions. */
  sessions: number;
  /** Active legacy clients that act for the user. */
  clients: number;
}

const readRemoval = `
  select guid, email, (select name from roles where id = u.role_id) as role, scope,
         (select count(*)::int from sessions
           where user_id = u.id and revoked_at is null and ${unexpired}) as sessions,
         (select count(*)::int from api_clients where user_id = u.id and revoked_at is null) as clients
    from users u where id = $1`;
const lockUser = 'select from users where id = $1 for update';
const revokeClients = 'update api_clients set revoked_at = now() where user_id = $1 and revoked_at is null';
const deleteUser = 'delete from users where id = $1';

/**
 * Removes a user with all sessions, mail tokens and legacy clients. Every process refuses their tokens within a second.
 * The audit log of the tenant keeps its entries, which name the user by id and guid; neither is given to another user.
 * @param isDryRun true to return what the removal ends, and to change nothing
 * @throws {OperatorError} when the user does not exist, or nobody else can manage the users of the tenant
 */
export async function removeUser(
  installation: Installation,
  slug: string,
  email: string,
  isDryRun = false,
): Promise<UserRemoval> {
  const { id, tenant } = await findUser(installation, slug, email);
  const change = async ({ query }: PeopleTransaction) => {
    const [removal] = await query<UserRemoval>('operator_user_removal', readRemoval, [id]);
    if (!removal) throw noSuchUser(slug, email);
    await query('operator_lock_user', lockUser, [id]); // before the sessions, in the order of `usePasswordToken`
    await revokeSessionsOf(query, id, 'operator'); // an entry of the audit log for each
    await query('operator_revoke_clients', revokeClients, [id]);
    await query('operator_delete_user', deleteUser, [id]);
    return removal;
  };
  return changePeopleOf(installation, { id: tenant.id, slug }, { change, isDryRun });
}
