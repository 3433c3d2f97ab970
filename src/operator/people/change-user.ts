import { normaliseEmail } from '../../auth/email.ts';
import type { Scope } from '../../control/scopes.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { findManagedUser, replaceUser } from '../../people/user-records.ts';
import { readTenant } from '../tenants/read-tenants.ts';
import { noSuchUser, type UserSummary } from '../tenants/read-users.ts';
import { findTenant } from '../tenants/tenants.ts';
import { changePeopleOf } from './change-people-of.ts';
import { requireName } from './require-name.ts';
import { noSuchRole } from './roles.ts';
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

/** A user as a change leaves it. */
export type ChangedUser = Omit<UserSummary, 'state'>;

/**
 * Changes what an administrator of the tenant may change too. All processes apply it within a second.
 * @param isDryRun true to return the result, and to change nothing
 * @throws {OperatorError} when nothing is to be changed, a name is not acceptable, there is no such user, role or
 *   entity,
 * or the user has only registered
 */
export async function changeUser(
  installation: Installation,
  slug: string,
  email: string,
  { firstName, lastName, role, scope, entityId }: UserChanges,
  isDryRun = false,
): Promise<ChangedUser> {
  if ([firstName, lastName, role, scope, entityId].every(value => value === undefined))
    throw new OperatorError('Name what to change: --role, --scope, --entity, --first-name or --last-name', {
      usage: true,
    });
  const tenant = await findTenant(installation, slug);
  const { id, guid, ...user } = await findUser(installation, slug, email);
  if (entityId) await requireEntity(installation, tenant, entityId);
  return changePeopleOf(installation, tenant, {
    change: async transaction => {
      const found = await findManagedUser(transaction, tenant.id, id);
      const changed = {
        FirstName: firstName === undefined ? user.firstName : requireName('first name', firstName),
        LastName: lastName === undefined ? user.lastName : requireName('last name', lastName),
        Role: role ?? found.role,
        Scope: scope ?? user.scope,
        EntityId: (entityId === undefined ? user.entityId : entityId) ?? null,
      };
      await replaceUser(transaction, tenant.id, found, changed);
      return {
        guid,
        email: user.email,
        firstName: changed.FirstName,
        lastName: changed.LastName,
        role: changed.Role,
        scope: changed.Scope,
        entityId: changed.EntityId,
      };
    },
    refusals: {
      not_found: noSuchUser(slug, email).message,
      validation_failed: noSuchRole(slug, role ?? '').message,
      forbidden:
        `${user.email} has not confirmed a registration, and anyone may have sent it. Change the user after the ` +
        'confirmation, or let an administrator of the tenant invite the address',
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
