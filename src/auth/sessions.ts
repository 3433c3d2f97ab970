import { type EntityManager, raw } from '@mikro-orm/postgresql';
import type { ControlDatabase } from '../control/database.ts';
import { Session, User } from '../control/entities.ts';
import type { RefreshToken } from './refresh-token.ts';

const sessionsPerUser = 20;
const repeatable = `interval '10 seconds'`; // a lost reply, two tabs
/** Since the last refresh, and since the login. */
export const live = `refreshed_at > now() - interval '7 days' and created_at > now() - interval '30 days'`;

/**
 * Opens a session for a user whose password was right, and stores its renewed hash. Of a user's sessions the newest 20
 * stay; older ones are revoked, and those that can never be used again are removed.
 * @returns undefined when the password or the user was changed since it was checked: that change ended all sessions
 */
export async function openSession(
  control: ControlDatabase,
  user: User,
  renewedHash?: string,
): Promise<RefreshToken | undefined> {
  return control.em.fork().transactional(async em => {
    // One login of a user at a time, so that the count holds; foreign keys to the row are not held up.
    const [unchanged] = await em.execute<object[]>(
      'select from users where id = ? and password_hash = ? and disabled_at is null for no key update',
      [user.id, user.passwordHash],
    );
    if (!unchanged) return undefined;
    if (renewedHash) await em.execute('update users set password_hash = ? where id = ?', [renewedHash, user.id]);
    await em.execute(`delete from sessions where user_id = ? and not (${live})`, [user.id]);
    const session = em.create(Session, { tenant: user.tenant.id, user: em.getReference(User, user.id) });
    await em.flush();
    await em.execute(
      `update sessions set revoked_at = now(), revoked_reason = 'too_many'
        where revoked_at is null and id in
          (select id from sessions where user_id = ? and revoked_at is null order by created_at desc, id offset ${sessionsPerUser})`,
      [user.id],
    );
    return { sessionId: session.id, generation: 0 };
  });
}

export type Rotation = { outcome: 'rotated'; successor: RefreshToken } | { outcome: 'refused' } | { outcome: 'reused' };

/**
 * Exchanges a refresh token for its successor (RFC 9700 §4.14.2). Of many uses at once one rotates; the token just
 * replaced may be repeated for 10 s and yields the same successor. Any older one means that a copy is about: the session
 * is revoked.
 */
export async function rotateSession(
  control: ControlDatabase,
  tenantId: number,
  token: RefreshToken,
): Promise<Rotation> {
  const em = control.em.fork();
  const { sessionId, generation } = token;
  const good = `id = ? and tenant_id = ? and revoked_at is null and ${live}`;
  const [rotated] = await em.execute<object[]>(
    `update sessions set refresh_generation = refresh_generation + 1, refreshed_at = now()
      where ${good} and refresh_generation = ? returning id`,
    [sessionId, tenantId, generation],
  );
  const successor = { sessionId, generation: generation + 1 };
  if (rotated) return { outcome: 'rotated', successor };

  const [found] = await em.execute<{ repeated: boolean }[]>(
    `select refresh_generation = ? + 1 and refreshed_at > now() - ${repeatable} as repeated from sessions where ${good}`,
    [generation, sessionId, tenantId],
  );
  if (!found) return { outcome: 'refused' };
  if (found.repeated) return { outcome: 'rotated', successor };
  await revokeSession(control, sessionId, 'refresh_reuse');
  return { outcome: 'reused' };
}

/** The sessions of a user that are good, the newest first. */
export async function liveSessions(control: ControlDatabase, userId: number): Promise<Session[]> {
  const where = { user: userId, revokedAt: null, [raw(live)]: [] };
  return control.em.fork().find(Session, where, { orderBy: { createdAt: 'desc', id: 'asc' } });
}

/** Ends a session; every process refuses it within a second. Ending it again changes nothing. */
export async function revokeSession(control: ControlDatabase, sessionId: string, reason: string): Promise<void> {
  await control.em
    .fork()
    .execute('update sessions set revoked_at = now(), revoked_reason = ? where id = ? and revoked_at is null', [
      reason,
      sessionId,
    ]);
}

/** Ends every session of a user, in the transaction of the change that demands it. */
export async function revokeSessionsOf(em: EntityManager, userId: number, reason: string): Promise<void> {
  await em.execute(
    'update sessions set revoked_at = now(), revoked_reason = ? where user_id = ? and revoked_at is null',
    [reason, userId],
  );
}
