import { normaliseEmail } from '../../auth/email.ts';
import { transactControl } from '../../control/database.ts';
import { lockPeople } from '../../control/people-lock.ts';
import type { Scope } from '../../control/scopes.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { noSuchUser, readTenant } from './read-tenants.ts';
import { noSuchRole } from './roles.ts';
import { findTenant } from './tenants.ts';
import { findUser, requireEntity } from './users.ts';

/** What to change of a user; what is undefined stays as it is. */
interface UserChanges {
  firstName?: string | undefined;
  lastName?: string | undefined;
  role?: string | undefined;
  scope?: Scope | undefined;
  /** Null: no entity. */
  entityId?: number | null | undefined;
}

interface ChangedUser {
  guid: string;
  email: string;
  firstName: string;
  lastName: string;
  role: string;
  scope: Scope;
  entityId: number | null;
}

const roleByName = 'select id from roles where tenant_id = $1 and name = $2';
const changeColumns = `
  update users u
     set first_name = coalesce($2::text, first_name), last_name = coalesce($3::text, last_name),
         role_id = coalesce($4::bigint, role_id), scope = coalesce($5::text, scope),
         entity_id = case when $6::boolean then $7::bigint else entity_id end
   where u.id = $1 and (confirmed_at is not null or invited_at is not null)
  returning guid, email, first_name as "firstName", last_name as "lastName",
            (select name from roles r where r.id = u.role_id) as role, scope, entity_id::float8 as "entityId"`;

/**
 * The sender of a registration chose its password. The role that an operator gives to an address must not become the
 * sender's.
 */
const registrationOnly = (email: string): string =>
  `${email} has not confirmed a registration, and anyone may have sent it. Change the user after the confirmation, or let an ` +
  'administrator of the tenant invite the address';

/**
 * Changes what an administrator of the tenant may change too. All processes apply it within a second.
 * @throws {OperatorError} when nothing is to be changed, or there is no such user, role or entity, or the user has only
 * registered
 */
export async function changeUser(
  installation: Installation,
  slug: string,
  email: string,
  { firstName, lastName, role, scope, entityId }: UserChanges,
): Promise<ChangedUser> {
  if ([firstName, lastName, role, scope, entityId].every(value => value === undefined))
    throw new OperatorError('Name what to change: --role, --scope, --entity, --first-name or --last-name', {
      usage: true,
    });
  const tenant = await findTenant(installation, slug);
  const user = await findUser(installation, slug, email);
  if (entityId) await requireEntity(installation, tenant, entityId);
  return transactControl(installation.control, async query => {
    await lockPeople(query, tenant.id);
    const [found] =
      role === undefined ? [] : await query<{ id: string }>('operator_role_id', roleByName, [tenant.id, role]);
    if (role !== undefined && !found) throw noSuchRole(slug, role);
    const values = [firstName, lastName, found?.id, scope, entityId !== undefined, entityId];
    const [changed] = await query<ChangedUser>('operator_change_user', changeColumns, [user.id, ...values]);
    if (!changed) throw new OperatorError(registrationOnly(user.email));
    return changed;
  });
}

/** The role of a user. */
interface UserRole {
  email: string;
  role: string;
  scope: Scope;
  permissions: string[];
  /** The names of the other roles of the tenant. */
  others: string[];
}

/** @throws {OperatorError} when the tenant has no such user */
export async function readUserRole({ statements }: Installation, slug: string, address: string): Promise<UserRole> {
  const tenant = await readTenant({ statements }, slug);
  const [found] = await statements.execute<UserRole[]>(
    `select u.email, r.name as role, u.scope, r.permissions,
            array(select name from roles o where o.tenant_id = u.tenant_id and o.id <> r.id
                   order by lower(name), id) as others
       from users u join roles r on r.id = u.role_id where u.tenant_id = ? and u.email = ?`,
    [tenant.id, normaliseEmail(address)],
  );
  if (!found) throw noSuchUser(slug, address);
  return found;
}
