import { createHash, randomBytes } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import { setActor } from '../control/actor.ts';
import type { QueryControl } from '../control/database.ts';
import type { MailToken } from '../control/user-entities.ts';
import type { Origin } from '../tenancy/request-context.ts';
import { removeExpired } from './remove-expired.ts';
import { revokeSessionsOf, setPasswordHash } from './sessions.ts';

/** Creates a random token of 43 characters for a mail. Only its hash is stored. */
export function createToken(): string {
  return randomBytes(32).toString('base64url');
}

/**
 * Creates a token that resets a password: valid once, for one hour. It replaces the user's former token.
 * Also removes expired tokens.
 */
export async function createResetToken(em: EntityManager, user: { id: number; tenantId: number }): Promise<string> {
  const token = createToken();
  await removeExpired(em, 'mail_tokens');
  await em.execute(
    `insert into mail_tokens (hash, tenant_id, user_id, purpose, expires_at)
      values (?, ?, ?, 'reset', now() + interval '1 hour')
      on conflict (user_id, purpose) do update
        set hash = excluded.hash, expires_at = excluded.expires_at, created_at = now()`,
    [hashOf(token), user.tenantId, user.id],
  );
  return token;
}

interface InvitedUser {
  id: number;
  tenantId: number;
}

const invitationOf = `
  select $1::bytea, tenant_id, id, 'confirm', now() + interval '7 days' from users
   where tenant_id = $2 and id = $3 and confirmed_at is null and disabled_at is null`;
const insertInvitation = `
  with invited as (${invitationOf}),
    inserted as (
      insert into mail_tokens (hash, tenant_id, user_id, purpose, expires_at) select * from invited
      on conflict (user_id, purpose) do nothing returning user_id)
  select exists (select from inserted) as "isAdded" from invited`;
const upsertInvitation = `
  insert into mail_tokens (hash, tenant_id, user_id, purpose, expires_at) ${invitationOf}
  on conflict (user_id, purpose) do update
    set hash = excluded.hash, expires_at = excluded.expires_at, created_at = now()`;

/**
 * Makes a token valid that accepts an invitation and sets the first password: once, for 7 days. A valid token of a
 * former invitation stays in its place. Also removes expired tokens.
 * @returns whether the token is valid now; undefined when the user has accepted an invitation, or is disabled
 */
export async function addInvitationToken(
  query: QueryControl,
  user: InvitedUser,
  token: string,
): Promise<{ isAdded: boolean } | undefined> {
  await removeExpired({ execute: text => query('remove_expired_mail_tokens', text, []) }, 'mail_tokens');
  const values = [hashOf(token), user.tenantId, user.id];
  const [added] = await query<{ isAdded: boolean }>('insert_invitation', insertInvitation, values);
  return added;
}

/** Puts the token in the place of that of a former invitation. */
export async function replaceInvitationToken(query: QueryControl, user: InvitedUser, token: string): Promise<void> {
  await query('upsert_invitation', upsertInvitation, [hashOf(token), user.tenantId, user.id]);
}

/** Deletes the tokens that a user has received by mail. */
export async function deleteMailTokens(query: QueryControl, userId: number): Promise<void> {
  await query('delete_mail_tokens', 'delete from mail_tokens where user_id = $1', [userId]);
}

const deletePasswordToken = `
  delete from mail_tokens where hash = $1 and tenant_id = $2
  returning user_id, (select guid from users u where u.id = user_id) as guid, purpose, expires_at > now() as valid`;
const confirmInvited = 'update users set confirmed_at = now() where id = $1 and confirmed_at is null returning id';

/**
 * Sets the password that a token of a mail permits to set, and deletes the token, so that it cannot be used again. A
 * reset revokes all sessions of the user; an invitation confirms the address.
 * @param origin where the request comes from: the user is the actor in the audit log
 * @returns the id of the user; undefined when the token was used, has expired, or belongs to another tenant
 */
export async function usePasswordToken(
  query: QueryControl,
  tenantId: number,
  origin: Pick<Origin, 'ipAddress' | 'traceId'>,
  token: string,
  passwordHash: string,
): Promise<number | undefined> {
  const [row] = await query<{ user_id: string; guid: string; purpose: MailToken['purpose']; valid: boolean }>(
    'delete_password_token',
    deletePasswordToken,
    [hashOf(token), tenantId],
  );
  if (!row?.valid) return undefined;
  const userId = Number(row.user_id);
  const { ipAddress, traceId } = origin;
  await setActor(query, JSON.stringify({ userId, userGuid: row.guid, ipAddress, traceId }));
  if (row.purpose === 'confirm' && (await query('confirm_invited', confirmInvited, [userId])).length === 0)
    return undefined;
  await setPasswordHash(query, userId, passwordHash);
  await revokeSessionsOf(query, userId, 'password_reset');
  return userId;
}

export function hashOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}
