import { findManagedUser } from '../../accounts/people/change-managed-user.ts';
import {
  managedPeople,
  replaceUser,
  requireReplaceable,
} from '../../accounts/people/user-records.ts';
import type { Installation } from '../../control/installation.ts';
import type { Scope } from '../../control/scopes.ts';
import { readTenant } from '../registry/read-tenants.ts';
import { findTenant } from '../registry/tenants.ts';
import { changePeopleOf } from './change-people-of.ts';
import { noSuchUser, type UserSummary } from './read-users.ts';
import { requireEmail } from './required-values.ts';
import { findUser } from './users.ts';

/** A user as a change leaves it. */
export type ChangedUser = Omit<UserSummary, 'state' | 'secondFactor' | 'mail'>;

/**
 * Gives a user another role of the tenant. All processes apply it within a second.
 * @param isDryRun true to return the result, and to change nothing
 * @throws {OperatorError} when there is no such user or role, the user has only registered, or
 *   nobody could manage the users of the tenant any more
 */
export async function setUserRole(
  installation: Installation,
  slug: string,
  email: string,
  role: string,
  isDryRun = false,
): Promise<ChangedUser> {
  const tenant = await findTenant(installation, slug);
  const user = await findUser(installation, slug, email);
  const { guid, firstName, lastName, scope } = user;
  const entityId = user.entityId ?? null;
  const { others, role: current } = await readUserRole(installation, slug, email);

  return changePeopleOf(installation, tenant, {
    change: async transaction => {
      const found = await findManagedUser(managedPeople, transaction, tenant.id, user.id);
      const changed = {
        FirstName: firstName,
        LastName: lastName,
        Role: role,
        Scope: scope,
        EntityId: entityId,
        entitySince: user.entitySince ?? null,
      };
      const roleId = await requireReplaceable(transaction, tenant.id, found, changed, {});
      await replaceUser(transaction, found, roleId, changed);

      return { guid, email: user.email, firstName, lastName, role, scope, entityId };
    },
    refusals: {
      not_found: noSuchUser(slug, email).message,
      validation_failed: `${slug} has no role ${role}. Its roles are ${[current, ...others].join(', ')}`,
      wrong_state:
        `${user.email} has not confirmed a registration, and anyone may have sent it. Change ` +
        'the user after the confirmation, or let an administrator of the tenant invite the ' +
        'address',
    },
    isDryRun,
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
export async function readUserRole(
  { statements }: Installation,
  slug: string,
  address: string,
): Promise<UserRole> {
  const tenant = await readTenant({ statements }, slug);
  const { rows } = await statements.query<UserRole>(
    `select u.email, r.name as role, u.scope, r.permissions,
            array(select name from roles o where o.tenant_id = u.tenant_id and o.id <> r.id
                   order by lower(name), id) as others
       from users u join roles r on r.id = u.role_id where u.tenant_id = $1 and u.email = $2`,
    [tenant.id, requireEmail(address)],
  );
  const [found] = rows;
  if (!found) throw noSuchUser(slug, address);
  return found;
}
