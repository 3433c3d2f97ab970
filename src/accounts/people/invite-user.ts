import type { z } from 'zod';
import { problem } from '../../lib/problems.ts';
import type { FieldErrors } from '../../lib/runtime/field-error.ts';
import { requireMayManage } from '../../tenancy/permission-rules.ts';
import { noPassword } from '../auth/passwords.ts';
import { withdrawRegistrationsOf } from '../mails/use-link.ts';
import type { Managed } from './change-managed-user.ts';
import type { HeldEntity, PeopleTransaction } from './change-people.ts';
import {
  addressTaken,
  type CheckedFields,
  errorsOfEntity,
  requireValidUser,
  type userFields,
} from './user-records.ts';

/** The maximum number of users of a tenant. */
const maxUsers = 100_000;

type Invitation = z.output<typeof userFields> & { Email: string };

const userByEmail = `
  select u.id::float8 as id, r.permissions, u.invited_at is not null as "isInvited",
         u.confirmed_at is null and u.disabled_at is null as "isPending"
    from users u join roles r on r.id = u.role_id where u.tenant_id = $1 and u.email = $2`;
const insertInvited = `
  insert into users (tenant_id, email, password_hash, first_name, last_name, role_id, scope, entity_id, entity_since,
                     invited_at)
  values ($1, $2, '${noPassword}', $3, $4, $5, $6, $7, $8, now())
  on conflict (tenant_id, email) do nothing returning id::float8 as id`;
const inviteAgain = `
  update users
     set password_hash = '${noPassword}', first_name = $2, last_name = $3, role_id = $4, scope = $5, entity_id = $6,
         entity_since = $7, invited_at = now()
   where id = $1 and confirmed_at is null and disabled_at is null returning id`;
const countUsers = 'select count(*)::int as count from users where tenant_id = $1';

/**
 * Adds a user, or changes one who was invited and has not accepted yet. Deletes the
 * registrations of the address, which anyone may have sent: confirming one would set the
 * password that its sender chose.
 * @returns the id of the user
 * @throws {Problem} those of `requireInvitable`; `duplicate` when a user of the tenant has the
 *   address; `limit_reached`
 */
export async function inviteUser(
  transaction: PeopleTransaction,
  tenantId: number,
  { Email, FirstName, LastName, Role, Scope, EntityId }: Invitation,
  entity: HeldEntity,
): Promise<number> {
  const { query, permissions } = transaction;
  const roleId = await requireInvitable(transaction, tenantId, { Role, Email }, entity);
  const values = [FirstName, LastName, roleId, Scope, EntityId, entity.since];
  const [counted] = await query<{ count: number }>('count_users', countUsers, [tenantId]);
  if ((counted?.count ?? 0) >= maxUsers) throw problem('limit_reached');
  const [added] = await query<{ id: number }>('insert_invited', insertInvited, [
    tenantId,
    Email,
    ...values,
  ]);
  if (added) return added.id;

  const [known] = await query<{
    id: number;
    permissions: string[];
    isInvited: boolean;
    isPending: boolean;
  }>('user_by_email', userByEmail, [tenantId, Email]);
  if (!known?.isPending) throw addressTaken();
  if (known.isInvited) requireMayManage(known.permissions, permissions);
  if ((await query('invite_again', inviteAgain, [known.id, ...values])).length === 0) {
    throw addressTaken();
  }
  await withdrawRegistrationsOf(query, known.id);
  return known.id;
}

const entityByEmail = `
  select entity_id::float8 as "entityId", to_json(entity_since) #>> '{}' as "entitySince"
    from users where tenant_id = $1 and email = $2`;

/**
 * Requires that a person may be invited, also again, with these fields.
 * @param errors of other fields, which the caller has found
 * @returns the id of the role
 * @throws {Problem} those of `requireValidUser`
 */
export async function requireInvitable(
  transaction: PeopleTransaction,
  tenantId: number,
  fields: CheckedFields,
  entity: HeldEntity,
  errors: FieldErrors = {},
): Promise<number> {
  const [known] =
    entity.since === null || fields.Email === undefined
      ? []
      : await transaction.query<Pick<Managed, 'entityId' | 'entitySince'>>(
          'entity_by_email',
          entityByEmail,
          [tenantId, fields.Email],
        );
  const all = { ...errors, ...errorsOfEntity(known, entity) };

  return requireValidUser(transaction, tenantId, fields, all);
}
