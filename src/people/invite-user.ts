import type { z } from 'zod';
import { createInvitationToken } from '../auth/mail-token.ts';
import { problem } from '../errors.ts';
import type { PeopleTransaction } from './change-people.ts';
import { requireMayManage } from './permission-rules.ts';
import { findGrantableRole, type userFields } from './user-records.ts';

type Invitation = z.output<typeof userFields> & { Email: string };

/** No password verifies against it: it is no hash. */
const noPassword = 'none';

const userByEmail = `
  select u.id::float8 as id, r.permissions, u.invited_at is not null as "isInvited",
         u.confirmed_at is null and u.disabled_at is null as "isPending"
    from users u join roles r on r.id = u.role_id where u.tenant_id = $1 and u.email = $2`;
const insertInvited = `
  insert into users (tenant_id, email, password_hash, first_name, last_name, role_id, scope, entity_id, invited_at)
  values ($1, $2, '${noPassword}', $3, $4, $5, $6, $7, now())
  on conflict (tenant_id, email) do nothing returning id::float8 as id`;
const inviteAgain = `
  update users
     set password_hash = '${noPassword}', first_name = $2, last_name = $3, role_id = $4, scope = $5, entity_id = $6,
         invited_at = now()
   where id = $1 and confirmed_at is null and disabled_at is null returning id`;
const deleteRegistrations = 'delete from registrations where user_id = $1';

/**
 * Adds a user, or invites one again who has not accepted yet, and creates the token of the invitation. The address may
 * have been registered by anyone: its registrations are deleted, because confirming one would set the password that
 * its sender chose.
 * @throws {Problem} `duplicate` when a user of the tenant has the address
 */
export async function inviteUser(
  transaction: PeopleTransaction,
  tenantId: number,
  { Email, FirstName, LastName, Role, Scope, EntityId }: Invitation,
): Promise<{ id: number; token: string }> {
  const { query, permissions } = transaction;
  const roleId = await findGrantableRole(transaction, tenantId, Role);
  const values = [FirstName, LastName, roleId, Scope, EntityId];
  const [added] = await query<{ id: number }>('insert_invited', insertInvited, [tenantId, Email, ...values]);
  if (added) return { id: added.id, token: await createInvitationToken(query, { id: added.id, tenantId }) };

  const [known] = await query<{ id: number; permissions: string[]; isInvited: boolean; isPending: boolean }>(
    'user_by_email',
    userByEmail,
    [tenantId, Email],
  );
  if (!known?.isPending) throw addressTaken();
  if (known.isInvited) requireMayManage(known.permissions, permissions);
  const token = await createInvitationToken(query, { id: known.id, tenantId }); // first, in the order of `usePasswordToken`
  if ((await query('invite_again', inviteAgain, [known.id, ...values])).length === 0) throw addressTaken();
  await query('delete_registrations', deleteRegistrations, [known.id]);
  return { id: known.id, token };
}

function addressTaken() {
  return problem('duplicate', { errors: { Email: [{ message: 'is taken', code: 'taken' }] } });
}
