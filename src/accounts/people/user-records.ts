import { z } from 'zod';
import { scopes } from '../../control/scopes.ts';
import { describeFields, lengths, longId, text } from '../../lib/http/request/fields.ts';
import { type Problem, problem } from '../../lib/problems.ts';
import type { FieldError, FieldErrors } from '../../lib/runtime/field-error.ts';
import { requireMayGrant } from '../../tenancy/permission-rules.ts';
import { withdrawLinks } from '../mails/use-link.ts';
import type { Managed, ManagedKind } from './change-managed-user.ts';
import type { HeldEntity, PeopleTransaction } from './change-people.ts';
import { findRole } from './role-records.ts';
import { userDocumentation } from './user-documentation.ts';
import { userById, userDescriptions, userView, volatileUserFields } from './user-statements.ts';

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

/** A person whom a change is about. */
export interface ManagedPerson extends Managed {
  /** The name of the person's role. */
  readonly role: string;
  readonly isConfirmed: boolean;
  readonly isInvited: boolean;
  readonly isDisabled: boolean;
  readonly email: string;
}

const managedPerson = `
  select u.id::float8 as id, u.email, u.entity_id::float8 as "entityId",
         to_json(u.entity_since) #>> '{}' as "entitySince", r.name as role, r.permissions, u.confirmed_at is not null as "isConfirmed",
         u.invited_at is not null as "isInvited", u.disabled_at is not null as "isDisabled"
    from users u join roles r on r.id = u.role_id
   where u.tenant_id = $1 and u.id = $2 and u.kind = 'person'`;

/** People, as administrators manage them. */
export const managedPeople: ManagedKind<ManagedPerson, typeof userView> = {
  path: '/api/v1/Users',
  documentation: userDocumentation,
  view: userView,
  volatile: volatileUserFields,
  selectManaged: (tenantId, id) => ({
    name: 'managed_person',
    text: managedPerson,
    values: [tenantId, id],
  }),
  byId: (tenantId, id) => userById([['tenant_id = ?', tenantId]], id),
};

/**
 * Returns the error of the entity that a user shall belong to, also of one that has got the
 * number of the user's: a database that has lost its last commits gives numbers again. A client
 * sends the number that it has read beside a new name, and the user would get the data of the
 * other entity.
 * @param user undefined for a new one
 */
export function errorsOfEntity(
  user: Pick<Managed, 'entityId' | 'entitySince'> | undefined,
  { id, since, errors }: HeldEntity,
): FieldErrors {
  const isOther = since !== null && user?.entityId === id && user.entitySince !== since;
  return isOther ? { EntityId: [otherEntity] } : errors;
}

const otherEntity: FieldError = {
  message:
    'is the number of another entity than that of the user, which is lost: send null, and then ' +
    'the number, if the user shall belong to the other one',
  code: 'ambiguous',
};

const otherWithAddress = `
  select confirmed_at is null and disabled_at is null as "isPending" from users
   where tenant_id = $1 and email = $2 and id <> $3`;
const isTaken: FieldError = { message: 'is taken', code: 'taken' };

/**
 * The fields of a user that refer to others, or that no other user has; without those that the
 * contract refuses.
 */
export interface CheckedFields {
  readonly Role?: string | undefined;
  readonly Email?: string | undefined;
}

/**
 * Checks the fields of a user together.
 * @param errors of other fields, which the caller has found
 * @param user whose fields they become; undefined for a person who is invited, also again
 * @returns the id of the role
 * @throws {Problem} `validation_failed`, which has the error of each field: also of an address
 *   that is taken, if there are others; `forbidden` when the caller may not grant the role
 */
export async function requireValidUser(
  { query, permissions }: PeopleTransaction,
  tenantId: number,
  { Role, Email }: CheckedFields,
  errors: FieldErrors,
  user?: Pick<Managed, 'id'>,
): Promise<number> {
  const role = Role === undefined ? undefined : await findRole(query, tenantId, Role);
  if (role) requireMayGrant(role.Permissions, permissions);
  if (role && Object.keys(errors).length === 0) return role.Id;

  const all: FieldErrors = { ...errors };
  if (Role !== undefined && !role) {
    all.Role = [{ message: 'is not a role', code: 'unknown_reference' }];
  }
  if (Email !== undefined && !all.Email) {
    const [other] = await query<{ isPending: boolean }>('other_with_address', otherWithAddress, [
      tenantId,
      Email,
      user?.id ?? 0,
    ]);
    if (other && (user || !other.isPending)) all.Email = [isTaken];
  }
  throw problem('validation_failed', { errors: all });
}

const updateUser = `
  update users set first_name = $2, last_name = $3, role_id = $4, scope = $5, entity_id = $6,
                   entity_since = $7
   where id = $1`;

type Fields = z.output<typeof userFields> & { Email?: string | undefined };

/**
 * Requires that a user may get these fields. Refuses a user who has only registered: anyone may
 * have sent the registration and chosen its password, and would get the role. An invitation
 * deletes the registrations of its address. An address that was confirmed belongs to the person
 * who reads its mails.
 * @returns the id of the role
 * @throws {Problem} `wrong_state` when the user has only registered, and those of
 *   `requireValidUser`
 */
export async function requireReplaceable(
  transaction: PeopleTransaction,
  tenantId: number,
  user: ManagedPerson,
  fields: CheckedFields,
  errors: FieldErrors,
): Promise<number> {
  if (!user.isConfirmed && !user.isInvited) {
    throw problem('wrong_state', {
      detail: 'This person has not confirmed a registration. Invite the address instead.',
    });
  }

  const { Email } = fields;
  const isConfirmed = user.isConfirmed && Email !== undefined && Email !== user.email;
  const all = isConfirmed ? { ...errors, Email: [confirmed] } : errors;
  return requireValidUser(transaction, tenantId, fields, all, user);
}

const confirmed: FieldError = {
  message: 'cannot be changed, because the person has confirmed it',
  code: 'not_applicable',
};

/**
 * Writes the fields of a user that administrators and operators decide, and the time at which
 * the entity of the user was created.
 */
export async function replaceUser(
  transaction: PeopleTransaction,
  user: ManagedPerson,
  roleId: number,
  change: Fields & { entitySince: string | null },
): Promise<void> {
  await transaction.query('update_user', updateUser, [
    user.id,
    change.FirstName,
    change.LastName,
    roleId,
    change.Scope,
    change.EntityId,
    change.entitySince,
  ]);
}

const updateEmail = `
  update users u set email = $2, invited_at = now()
   where id = $1 and confirmed_at is null
     and not exists (select from users o where o.tenant_id = u.tenant_id and o.email = $2)
  returning id`;

/**
 * Corrects the address of a person who was invited, and has not accepted: all links in mails to
 * the former address are void.
 * @returns false when no address is given, or the person has this one already
 * @throws {Problem} `duplicate`
 */
export async function correctAddress(
  { query }: PeopleTransaction,
  { id, email }: ManagedPerson,
  address: string | undefined,
): Promise<boolean> {
  if (address === undefined || address === email) return false;

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
 * @throws {Problem} `wrong_state` when the person has accepted; `in_use` when an API client acts
 *   for the user
 */
export async function takeBack(
  { query }: PeopleTransaction,
  { id, isConfirmed }: ManagedPerson,
): Promise<void> {
  if (isConfirmed) {
    throw problem('wrong_state', {
      detail: 'This person has accepted the invitation. Disable the user instead.',
    });
  }
  await withdrawLinks(query, id);
  if ((await query('delete_unconfirmed_user', deleteUnconfirmed, [id])).length === 0) {
    throw problem('in_use', { detail: 'An API client acts for this user.', references: [] });
  }
}

export function addressTaken(): Problem {
  return problem('duplicate', { errors: { Email: [isTaken] } });
}
