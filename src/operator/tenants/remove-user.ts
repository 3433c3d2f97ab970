import { revokeSessionsOf, unexpired } from '../../auth/sessions.ts';
import { type QueryControl, transactControl } from '../../control/database.ts';
import { lockPeople } from '../../control/people-lock.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { noSuchUser } from './read-tenants.ts';
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

const isManager = (user: string): string =>
  `${user}.disabled_at is null and ${user}.confirmed_at is not null and ${user}.scope = 'All'
    and exists (select from roles where id = ${user}.role_id and 'users.manage' = any (permissions))`;

const readRemoval = `
  select guid, email, (select name from roles where id = u.role_id) as role, scope,
         (select count(*)::int from sessions
           where user_id = u.id and revoked_at is null and ${unexpired}) as sessions,
         (select count(*)::int from api_clients where user_id = u.id and revoked_at is null) as clients,
         ${isManager('u')} and not exists (
           select from users o where o.tenant_id = u.tenant_id and o.id <> u.id and ${isManager('o')}) as "isLastManager"
    from users u where id = $1`;
const lockUser = 'select from users where id = $1 for update';
const revokeClients = 'update api_clients set revoked_at = now() where user_id = $1 and revoked_at is null';
const deleteUser = 'delete from users where id = $1';

/**
 * Returns what the removal of a user ends, and changes nothing.
 * @throws {OperatorError} when the user does not exist, or must not be removed
 */
export async function planUserRemoval(installation: Installation, slug: string, email: string): Promise<UserRemoval> {
  const { id } = await findUser(installation, slug, email);
  return transactControl(installation.control, query => requireRemovable(query, slug, email, id));
}

/**
 * Removes a user with all sessions, mail tokens and legacy clients. Every process refuses their tokens within a second.
 * The audit log of the tenant keeps its entries, which name the user by id and guid; neither is given to another user.
 * @throws {OperatorError} when the user does not exist, or is the last one who can manage the users of the tenant
 */
export async function removeUser(installation: Installation, slug: string, email: string): Promise<UserRemoval> {
  const { id, tenant } = await findUser(installation, slug, email);
  return transactControl(installation.control, async query => {
    await lockPeople(query, tenant.id);
    const removal = await requireRemovable(query, slug, email, id);
    await query('operator_lock_user', lockUser, [id]); // before the sessions, in the order of `usePasswordToken`
    await revokeSessionsOf(query, id, 'operator'); // an entry of the audit log for each
    await query('operator_revoke_clients', revokeClients, [id]);
    await query('operator_delete_user', deleteUser, [id]);
    return removal;
  });
}

async function requireRemovable(query: QueryControl, slug: string, email: string, id: number): Promise<UserRemoval> {
  const [found] = await query<UserRemoval & { isLastManager: boolean }>('operator_user_removal', readRemoval, [id]);
  if (!found) throw noSuchUser(slug, email);
  const { isLastManager, ...removal } = found;
  if (!isLastManager) return removal;
  throw new OperatorError(
    `${removal.email} is the last user of ${slug} who can manage its users. Add another one first: ` +
      `npx backoffice user add ${slug} EMAIL --role Administrator --scope All`,
  );
}
