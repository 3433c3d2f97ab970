import { raw } from '@mikro-orm/postgresql';
import { Session } from '../../control/control-entities.ts';
import {
  type ControlDatabase,
  type QueryControl,
  setActor,
  transactControl,
} from '../../control/database.ts';
import { mayUsePasswordOf } from '../../control/password-logins.ts';
import type { UserRecord } from '../../control/records.ts';
import { hasFactor } from '../../control/second-factor.ts';
import { refreshRepeatSeconds, sessionLifetime } from '../../control/token-lifetime.ts';
import type { Deadline } from '../../lib/runtime/deadline.ts';
import { createChallenge } from './factors/challenges.ts';
import type { LoginClient } from './login-client.ts';
import { insertNetwork, isKnownNetwork, removeOldNetworks } from './login-networks.ts';
import type { ProvedIdentity } from './proved-identity.ts';
import type { RefreshToken } from './refresh-token.ts';

const sessionsPerUser = 20;
/** SQL condition: the session has not expired, nor ended with the identity that opened it. */
export const unexpired = `
  refreshed_at > now() - interval '${sessionLifetime.idle}' and created_at > now() - interval '${sessionLifetime.total}'
  and (identity_id is null or end_of_session(identity_id, created_at) > now())`;

type OpenResult =
  | { outcome: 'opened'; token: RefreshToken }
  | { outcome: 'second_factor'; challenge: string }
  | { outcome: 'setup'; setupToken: string | undefined }
  | { outcome: 'refused' | 'changed' };

// One login per user at a time, so that the limit of sessions holds. `no key update` does not
// block foreign key checks.
const lockUser = `
  select password_hash = $2 as unchanged, confirmed_at is not null and disabled_at is null and ${mayUsePasswordOf('u')} as "mayLogIn",
         ${hasFactor('u')} as "hasFactor",
         must_set_up_factor or (select requires_second_factor from roles r where r.id = u.role_id) as "mustHaveFactor"
    from users u where id = $1 for no key update`;
const setHash = 'update users set password_hash = $2 where id = $1';
const insertSession = `
  with expired as (delete from sessions where user_id = $2 and not (${unexpired})),
       surplus as (
         update sessions set revoked_at = now(), revoked_reason = 'too_many'
          where revoked_at is null and id in (
            select id from sessions where user_id = $2 and revoked_at is null and ${unexpired}
             order by created_at desc, id offset ${sessionsPerUser - 1})),
       noted as (
         insert into logins (tenant_id, user_id, method, outcome, network, user_agent)
         values ($1, $2, array_to_string($3::text[], ' '), 'succeeded', $4, $5)),
       stored_network as (${insertNetwork('$2', '$4')})
  insert into sessions (tenant_id, user_id, methods, password_is_short, previous_login_at, identity_id, provider_sid,
                        idp_is_factor)
  values ($1, $2, $3, $6, (select last_login_at from users where id = $2), $7, $8, $9)
  returning id, exists (select from stored_network) as "hasStoredNetwork"`;

/** The password that a login has proved. */
interface ProvedPassword {
  /**
   * The hash that the password was verified with. If another hash is stored by now, the password
   * was changed, which ended all sessions, and the outcome is `changed`.
   */
  readonly hash: string;
  /** The hash to store in its place. */
  readonly renewedHash: string | undefined;
  /** True if new passwords of an account without a second factor have to be longer. */
  readonly isShort: boolean;
}

/**
 * Opens a session for a user whose password was verified, and stores the renewed hash if there
 * is one. A person with a second factor gets a challenge in place of the session; one whose role
 * requires a factor, and who has none, gets a token that sets one up, in a network that is known
 * for the account.
 */
export async function openSession(
  control: ControlDatabase,
  { id, tenantId }: Pick<UserRecord, 'id' | 'tenantId'>,
  client: LoginClient,
  { hash, renewedHash, isShort }: ProvedPassword,
): Promise<OpenResult> {
  return transactControl(control, async (query): Promise<OpenResult> => {
    const [user] = await query<LockedUser>('lock_user', lockUser, [id, hash]);
    if (!user?.unchanged) return { outcome: 'changed' };
    if (!user.mayLogIn) return { outcome: 'refused' };

    if (renewedHash) await renewPasswordHash(query, id, renewedHash);
    if (user.hasFactor) {
      return {
        outcome: 'second_factor',
        challenge: await createChallenge(query, id, 'verify', isShort),
      };
    }
    if (user.mustHaveFactor) {
      const isKnown = await isKnownNetwork(query, id, client.network);
      const setupToken = isKnown ? await createChallenge(query, id, 'setup', isShort) : undefined;
      return { outcome: 'setup', setupToken };
    }

    const token = await insertSessionOf(query, { id, tenantId }, client, {
      methods: passwordOnly,
      passwordIsShort: isShort,
    });
    return { outcome: 'opened', token };
  });
}

interface LockedUser {
  readonly unchanged: boolean;
  readonly mayLogIn: boolean;
  readonly hasFactor: boolean;
  readonly mustHaveFactor: boolean;
}

/** The proofs of a login. */
interface ProvedLogin {
  /** By RFC 8176; `idp` for one by a provider. */
  readonly methods: readonly string[];
  /** True if new passwords of an account without a second factor have to be longer. */
  readonly passwordIsShort: boolean;
  /** Undefined for a login by a password or a passkey. */
  readonly identity?: ProvedIdentity | undefined;
}

/** The proofs of a login with a password alone, by RFC 8176. */
export const passwordOnly: readonly string[] = ['pwd'];

/**
 * Inserts a session, and the row of its login. Keeps the newest 20 sessions of the user: older
 * ones are revoked, and expired ones are deleted. Remembers the client's network.
 * @param query of a transaction that has locked the user, and that commits afterwards
 */
export async function insertSessionOf(
  query: QueryControl,
  { id, tenantId }: Pick<UserRecord, 'id' | 'tenantId'>,
  { network, userAgent }: LoginClient,
  { methods, passwordIsShort, identity }: ProvedLogin,
): Promise<RefreshToken> {
  const values = [
    tenantId,
    id,
    methods,
    network,
    userAgent,
    passwordIsShort,
    identity?.id ?? null,
    identity?.providerSid ?? null,
    identity?.isFactor ?? false,
  ];
  const [session] = await query<{ id: string; hasStoredNetwork: boolean }>(
    'insert_session',
    insertSession,
    values,
  );
  if (!session) throw new Error('PostgreSQL returned no session');

  if (session.hasStoredNetwork) await removeOldNetworks(query, id, network);
  return { sessionId: session.id, generation: 0 };
}

const addOne = `
  update sessions set methods = methods || $2::text where id = $1::uuid and not $2::text = any (methods)`;

/**
 * Adds what a person has proved in a session, by RFC 8176, in the transaction that has taken the
 * proof. Every process knows it within 1 s.
 */
export async function addMethod(
  query: QueryControl,
  sessionId: string,
  method: 'otp' | 'pop',
): Promise<void> {
  await query('add_method', addOne, [sessionId, method]);
}

/** Stores the hash of a new password of a user. */
export async function setPasswordHash(
  query: QueryControl,
  userId: number,
  hash: string,
): Promise<void> {
  await query('set_password_hash', setHash, [userId, hash]);
}

/** Lets the trigger of notices know that a new hash is of the same password. */
const markRenewal = `select set_config('app.renews_password', $1, true)`;

/** Stores a new hash of the same password, of which the person gets no notice. */
async function renewPasswordHash(query: QueryControl, userId: number, hash: string): Promise<void> {
  await query('mark_renewal', markRenewal, ['true']);
  await setPasswordHash(query, userId, hash);
  await query('mark_renewal', markRenewal, ['']);
}

const usable = `id = $1 and tenant_id = $2 and revoked_at is null and ${unexpired}`;
/**
 * Rotates a session. `wasValid`: the session was valid when the statement began, before it
 * waited for another rotation of the session.
 */
const rotate = `
  with found as (select refresh_generation as generation from sessions where ${usable}),
       rotated as (
         update sessions set refresh_generation = $3 + 1, refreshed_at = now()
          where ${usable} and refresh_generation <= $3 returning id)
  select generation <= $3 as "wasValid", exists (select from rotated) as "isRotated" from found`;
const repeated = `
  select $4 or refresh_generation = $3 + 1 and refreshed_at > now() - interval '${refreshRepeatSeconds} seconds'
           as "isRepeated"
    from sessions where ${usable}`;

export type Rotation =
  | { outcome: 'rotated'; successor: RefreshToken }
  | { outcome: 'refused' }
  | { outcome: 'reused' };

/**
 * Exchanges a refresh token for its successor (RFC 9700 §4.14.2). Of concurrent uses, exactly
 * one rotates the session. The token that was just replaced may be used again for a minute, and
 * yields the same successor. So does a use that began before the replacement was committed,
 * however long that commit took. The reuse of any older token shows that it was copied, so the
 * session is revoked. A token that is newer than the stored generation was issued before the
 * control database was restored from a backup or lost its last changes in a failover: it is
 * valid.
 * @throws {DeadlineError} when the deadline has passed: whether the token is exchanged or not,
 *   its client may repeat it
 */
export async function rotateSession(
  control: ControlDatabase,
  tenantId: number,
  token: RefreshToken,
  deadline: Deadline,
): Promise<Rotation> {
  const { sessionId, generation } = token;
  const values = [sessionId, tenantId, generation];

  const rotation = await transactControl(
    control,
    async (query): Promise<Rotation> => {
      const [use] = await query<{ wasValid: boolean; isRotated: boolean }>(
        'rotate_session',
        rotate,
        values,
      );
      const successor = { sessionId, generation: generation + 1 };
      if (use?.isRotated) return { outcome: 'rotated', successor };

      const found = await query<{ isRepeated: boolean }>('repeated', repeated, [
        ...values,
        use?.wasValid ?? false,
      ]);
      if (found[0]?.isRepeated) return { outcome: 'rotated', successor };
      return { outcome: found.length > 0 ? 'reused' : 'refused' };
    },
    { deadline },
  );

  if (rotation.outcome === 'reused') await revokeSession(control, sessionId, 'refresh_reuse');
  return rotation;
}

/** Lists the sessions of a user that are neither revoked nor expired, the newest first. */
export async function listActiveSessions(
  control: ControlDatabase,
  userId: number,
): Promise<Session[]> {
  const where = { user: userId, revokedAt: null, [raw(unexpired)]: [] };
  return control.em.fork().find(Session, where, { orderBy: { createdAt: 'desc', id: 'asc' } });
}

const revoke =
  'update sessions set revoked_at = now(), revoked_reason = $2 where id = $1 and revoked_at is null';

/**
 * Revokes a session; every process refuses it within 1 s. Revoking it again keeps the first
 * reason.
 * @param actor who revokes it, for the audit log: `RequestContext.actor`
 */
export async function revokeSession(
  control: ControlDatabase,
  sessionId: string,
  reason: string,
  actor = '',
): Promise<void> {
  await transactControl(control, async query => {
    await setActor(query, actor);
    await query('revoke_session', revoke, [sessionId, reason]);
  });
}

const revokeAll = `
  update sessions set revoked_at = now(), revoked_reason = $2 where user_id = $1 and revoked_at is null`;

/** Revokes all sessions of a user, in the transaction of the change that requires it. */
export async function revokeSessionsOf(
  query: QueryControl,
  userId: number,
  reason: string,
): Promise<void> {
  await query('revoke_sessions', revokeAll, [userId, reason]);
}
