import { z } from 'zod';
import { scopes } from '../../control/scopes.ts';
import { fieldProblem, type Problem, problem } from '../../lib/errors.ts';
import { describeFields, lengths, longId, text } from '../../lib/http/fields.ts';
import type { Precondition } from '../../lib/http/representation.ts';
import { requireMayGrant, requireMayManage } from '../../tenancy/permission-rules.ts';
import { withdrawLinks } from '../mails/use-link.ts';
import type { PeopleTransaction } from './change-people.ts';
import { findRole } from './role-records.ts';
import { type UserView, userById, userDescriptions, viewOf } from './user-statements.ts';

/** The fields of a user that administrators decide. */
export const userFields = describeFields(
  {
    FirstName: text({ max: lengths.name }),
    LastName: text({ max: lengths.name }),
    Role: text({ max: lengths.name }),
    Scope: z.enum(scopes),
    EntityId: longId().nullable().default(null),
  },
  userDescriptions,
);

/** A user whom a change is about. */
export interface ManagedUser {
  readonly id: number;
  /** The name of the user's role. */
  readonly role: string;
  readonly permissions: string[];
  readonly isConfirmed: boolean;
  readonly isInvited: boolean;
  readonly isDisabled: boolean;
  readonly email: string;
}

const managedUser = `
  select u.id::float8 as id, u.email, r.name as role, r.permissions, u.confirmed_at is not null as "isConfirmed",
         u.invited_at is not null as "isInvited", u.disabled_at is not null as "isDisabled"
    from users u join roles r on r.id = u.role_id
   where u.tenant_id = $1 and u.id = $2`;

/**
 * Returns a user whom the caller may manage. Does not lock the row: other administrators wait
 * for the lock of `changePeople`, and the user's own changes (a password, a confirmation) touch
 * other columns.
 * @throws {Problem} `not_found`; `forbidden` when the user has a permission that the caller
 * lacks; `precondition_failed`
 */
export async function findManagedUser(
  { query, permissions }: PeopleTransaction,
  tenantId: number,
  id: number | undefined,
  precondition?: Precondition,
): Promise<ManagedUser> {
  const [user] = id ? await query<ManagedUser>('managed_user', managedUser, [tenantId, id]) : [];
  if (!user) throw problem('not_found');
  requireMayManage(user.permissions, permissions);
  if (precondition) {
    const { name, text, values } = userById([['tenant_id = ?', tenantId]], user.id);
    precondition(viewOf<UserView>(await query(name, text, values)));
  }
  return user;
}

/**
 * Returns the id of a role that the caller may grant.
 * @throws {Problem} `validation_failed` when the tenant has no such role; `forbidden` when the
 *   caller may not grant it
 */
export async function findGrantableRole(
  { query, permissions }: PeopleTransaction,
  tenantId: number,
  name: string,
): Promise<number> {
  const role = await findRole(query, tenantId, name);
  if (!role) throw fieldProblem('Role', 'is not a role', 'unknown_reference');
  requireMayGrant(role.Permissions, permissions);
  return role.Id;
}

const updateUser = `
  update users set first_name = $2, last_name = $3, role_id = $4, scope = $5, entity_id = $6 where id = $1`;

/**
 * Writes the fields of a user that administrators and operators decide. Refuses a user who has
 * only registered: anyone may have sent the registration and chosen its password, and would get
 * the role. An invitation deletes the registrations of its address.
 * @throws {Problem} `validation_failed` when the tenant has no such role; `forbidden` when the
 *   caller may not grant it, or the user has only registered
 */
export async function replaceUser(
  transaction: PeopleTransaction,
  tenantId: number,
  user: ManagedUser,
  { FirstName, LastName, Role, Scope, EntityId }: z.output<typeof userFields>,
): Promise<void> {
  if (!user.isConfirmed && !user.isInvited) {
    throw problem('forbidden', {
      detail: 'This person has not confirmed a registration. Invite the address instead.',
    });
  }

  const roleId = await findGrantableRole(transaction, tenantId, Role);
  await transaction.query('update_user', updateUser, [
    user.id,
    FirstName,
    LastName,
    roleId,
    Scope,
    EntityId,
  ]);
}

const updateEmail = `
  update users u set email = $2, invited_at = now()
   where id = $1 and confirmed_at is null
     and not exists (select from users o where o.tenant_id = u.tenant_id and o.email = $2)
  returning id`;

/**
 * Corrects the address of a person who was invited, and has not accepted: all links in mails to
 * the former address are void. An address that was confirmed belongs to the person who reads
 * its mails.
 * @returns false when the person has this address already
 * @throws {Problem} `validation_failed` when the address is confirmed; `duplicate`
 */
export async function correctAddress(
  { query }: PeopleTransaction,
  { id, email, isConfirmed }: ManagedUser,
  address: string,
): Promise<boolean> {
  if (address === email) return false;
  if (isConfirmed) {
    throw fieldProblem(
      'Email',
      'cannot be changed, because the person has confirmed it',
      'not_applicable',
    );
  }

  await withdrawLinks(query, id);
  const updated = await query('update_email', updateEmail, [id, address]);
  if (updated.length === 0) throw addressTaken();
  return true;
}

const deleteUnconfirmed = `
  delete from users u
   where id = $1 and confirmed_at is null and not exists (select from api_clients where user_id = u.id)
  returning id`;

/**
 * Takes an invitation back, or removes a registration that nobody has confirmed: the address is
 * free again, and all links in mails to it are void. A user who has accepted is disabled
 * instead, because records name the user.
 * @throws {Problem} `forbidden` when the person has accepted; `in_use` when an API client acts
 *   for the user
 */
export async function takeBack(
  { query }: PeopleTransaction,
  { id, isConfirmed }: ManagedUser,
): Promise<void> {
  if (isConfirmed) {
    throw problem('forbidden', {
      detail: 'This person has accepted the invitation. Disable the user instead.',
    });
  }
  await withdrawLinks(query, id);
  if ((await query('delete_unconfirmed_user', deleteUnconfirmed, [id])).length === 0) {
    throw problem('in_use');
  }
}

export function addressTaken(): Problem {
  return problem('duplicate', { errors: { Email: [{ message: 'is taken', code: 'taken' }] } });
}
