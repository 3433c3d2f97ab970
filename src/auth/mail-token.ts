import { createHash, randomBytes } from 'node:crypto';
import type { EntityManager } from '@mikro-orm/postgresql';
import { type QueryControl, setActor } from '../control/database.ts';
import type { Origin } from '../tenancy/request-context.ts';
import { removeExpired } from './remove-expired.ts';
import { revokeSessionsOf, setPasswordHash } from './sessions.ts';

/** Creates a random token of 43 characters for a mail. Only its hash is stored. */
export function createToken(): string {
  return randomBytes(32).toString('base64url');
}

/**
 * What a token that sets a password is for: `reset` replaces a password, `confirm` accepts an invitation and sets the
 * first one. Only the newest token of a user and a purpose is stored.
 */
type Purpose = 'confirm' | 'reset';

/**
 * Creates a token that resets a password: valid once, for one hour. It replaces the user's former token.
 * Also removes expired tokens.
 * @returns undefined when the user is disabled
 */
export async function createResetToken(em: EntityManager, userId: number): Promise<string | undefined> {
  const token = createToken();
  await removeExpired(em, 'mail_tokens');
  const added = await em.execute<unknown[]>(
    `insert into mail_tokens (hash, tenant_id, user_id, purpose, expires_at)
      select ?::bytea, tenant_id, id, 'reset', now() + interval '1 hour' from users
       where id = ? and disabled_at is null for no key update
      on conflict (user_id, purpose) do update
        set hash = excluded.hash, expires_at = excluded.expires_at, created_at = now()
      returning user_id`,
    [hashOf(token), userId],
  );
  return added.length > 0 ? token : undefined;
}

interface InvitedUser {
  id: number;
  tenantId: number;
}

// The lock makes the token follow or precede a change of the user: a disabled user never gets one.
const invitationOf = `
  select $1::bytea, tenant_id, id, 'confirm', now() + interval '7 days' from users
   where tenant_id = $2 and id = $3 and confirmed_at is null and disabled_at is null for no key update`;
const insertInvitation = `
  with invited as (${invitationOf}),
    inserted as (
      insert into mail_tokens (hash, tenant_id, user_id, purpose, expires_at) select * from invited
      on conflict (user_id, purpose) do update
        set hash = excluded.hash, expires_at = excluded.expires_at, created_at = now()
        where mail_tokens.expires_at < now() + interval '1 hour'
      returning user_id)
  select exists (select from inserted) as "isAdded", now()::text as "createdAt" from invited`;
const replaceInvitation = `
  update mail_tokens set hash = $1, expires_at = now() + interval '7 days', created_at = $3::timestamptz
   where user_id = $2 and purpose = 'confirm' and created_at < $3::timestamptz`;

/** Whether a token is valid now, and when it was made. */
export interface AddedInvitation {
  readonly isAdded: boolean;
  readonly createdAt: string;
}

/**
 * Makes a token valid that accepts an invitation and sets the first password: once, for 7 days. A token of a former
 * invitation that is valid for another hour stays in its place. Also removes expired tokens.
 * @returns undefined when the user has accepted an invitation, or is disabled
 */
export async function addInvitationToken(
  query: QueryControl,
  user: InvitedUser,
  token: string,
): Promise<AddedInvitation | undefined> {
  const values = [hashOf(token), user.tenantId, user.id];
  const [added] = await query<AddedInvitation>('insert_invitation', insertInvitation, values);
  // Locks tokens of other users, so last: after it, the transaction waits for nobody.
  await removeExpired({ execute: text => query('remove_expired_mail_tokens', text, []) }, 'mail_tokens');
  return added;
}

/**
 * Puts the token in the place of that of a former invitation. If the user was disabled or enabled, or accepted, since
 * the token was made, there is none any more; that of a later invitation stays.
 */
export async function replaceInvitationToken(
  query: QueryControl,
  userId: number,
  token: string,
  { createdAt }: AddedInvitation,
): Promise<void> {
  await query('replace_invitation', replaceInvitation, [hashOf(token), userId, createdAt]);
}

// Locks the user before the token, as all that void tokens do.
const lockUserOfToken = `
  select u.id, u.guid from users u join mail_tokens t on t.user_id = u.id
   where t.hash = $1 and t.tenant_id = $2 and t.expires_at > now() and u.disabled_at is null
     for no key update of u`;
const deletePasswordToken = 'delete from mail_tokens where hash = $1 returning purpose';
const confirmInvited = 'update users set confirmed_at = now() where id = $1 and confirmed_at is null returning id';

/**
 * Sets the password that a token of a mail permits to set, and deletes the token, so that it cannot be used again. A
 * reset revokes all sessions of the user; an invitation confirms the address.
 * @param origin where the request comes from: the user is the actor in the audit log
 * @returns the id of the user; undefined when the token was used, has expired, or belongs to another tenant, or the
 *   user
 * is disabled
 */
export async function usePasswordToken(
  query: QueryControl,
  tenantId: number,
  origin: Pick<Origin, 'ipAddress' | 'traceId'>,
  token: string,
  passwordHash: string,
): Promise<number | undefined> {
  const hash = hashOf(token);
  const [user] = await query<{ id: string; guid: string }>('lock_user_of_token', lockUserOfToken, [hash, tenantId]);
  const [used] = user ? await query<{ purpose: Purpose }>('delete_password_token', deletePasswordToken, [hash]) : [];
  if (!user || !used) return undefined;
  const userId = Number(user.id);
  const { ipAddress, traceId } = origin;
  await setActor(query, JSON.stringify({ userId, userGuid: user.guid, ipAddress, traceId }));
  if (used.purpose === 'confirm' && (await query('confirm_invited', confirmInvited, [userId])).length === 0)
    return undefined;
  await setPasswordHash(query, userId, passwordHash);
  await revokeSessionsOf(query, userId, 'password_reset');
  return userId;
}

export function hashOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}
