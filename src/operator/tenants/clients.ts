import { createHash, randomBytes } from 'node:crypto';
import { raw } from '@mikro-orm/postgresql';
import { normaliseEmail } from '../../auth/email.ts';
import { revokeSession, revokeSessionsOf, unexpired } from '../../auth/sessions.ts';
import { ApiClient, LegacyToken } from '../../control/client-entities.ts';
import { Session, User } from '../../control/user-entities.ts';
import { isUuid } from '../../http/uuid.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { findTenant } from './tenants.ts';

/** The sessions of a tenant, or of one of its users, that can still be used, the newest first. */
export async function listSessions(installation: Installation, slug: string, email?: string) {
  const tenant = await findTenant(installation, slug);
  const user = email === undefined ? {} : { user: (await findUser(installation, slug, email)).id };
  const where = { tenant: tenant.id, revokedAt: null, [raw(unexpired)]: [], ...user };
  const sessions = await installation.control.em
    .fork()
    .find(Session, where, { populate: ['user'], strategy: 'select-in', orderBy: { createdAt: 'desc' } });
  return sessions.map(session => ({
    id: session.id,
    email: session.user.email,
    createdAt: session.createdAt.toISOString(),
    refreshedAt: session.refreshedAt.toISOString(),
  }));
}

/** Ends one session of a tenant, or all of a user. Every process refuses them within a second. */
export async function revokeSessions(
  installation: Installation,
  slug: string,
  which: { id: string } | { email: string },
): Promise<void> {
  if ('email' in which) {
    const user = await findUser(installation, slug, which.email);
    return revokeSessionsOf(installation.control.em.fork(), user.id, 'operator');
  }
  const tenant = await findTenant(installation, slug);
  const session =
    isUuid(which.id.toLowerCase()) &&
    (await installation.control.em.fork().findOne(Session, { id: which.id, tenant: tenant.id }));
  if (!session) throw new OperatorError(`${slug} has no session ${which.id}`);
  await revokeSession(installation.control, session.id, 'operator');
}

/** Lets an old program act for a user. @returns its id, and its secret, which is known only now */
export async function addClient(
  installation: Installation,
  slug: string,
  email: string,
  name: string,
): Promise<{ id: string; secret: string }> {
  const user = await findUser(installation, slug, email);
  const id = `client-${randomBytes(8).toString('hex')}`;
  const secret = randomBytes(32).toString('base64url');
  const secretHash = createHash('sha256').update(secret).digest();
  await installation.control.em
    .fork()
    .insert(ApiClient, { id, tenant: user.tenant.id, user: user.id, name, secretHash });
  return { id, secret };
}

/** The old programs of a tenant, with how often their tokens were used. */
export async function listClients(installation: Installation, slug: string) {
  const tenant = await findTenant(installation, slug);
  const em = installation.control.em.fork();
  const clients = await em.find(
    ApiClient,
    { tenant: tenant.id },
    { populate: ['user'], orderBy: { createdAt: 'asc' } },
  );
  const tokens = await em.find(LegacyToken, { tenant: tenant.id });
  return clients.map(client => {
    const own = tokens.filter(token => token.client.id === client.id);
    const used = own.flatMap(token => token.lastUsedAt?.toISOString() ?? []).sort();
    return {
      id: client.id,
      name: client.name,
      user: client.user.email,
      state: client.revokedAt ? 'revoked' : 'active',
      tokens: own.length,
      uses: own.reduce((sum, token) => sum + token.uses, 0),
      lastUsedAt: used.at(-1) ?? null,
    };
  });
}

/** Refuses a client and every token it was given. */
export async function revokeClient(installation: Installation, slug: string, id: string): Promise<void> {
  const tenant = await findTenant(installation, slug);
  const revoked = await installation.control.em
    .fork()
    .nativeUpdate(ApiClient, { id, tenant: tenant.id, revokedAt: null }, { revokedAt: new Date() });
  if (revoked === 0) throw new OperatorError(`${slug} has no active client ${id}`);
}

/** @throws {OperatorError} when the tenant has no such user */
export async function findUser(installation: Installation, slug: string, email: string): Promise<User> {
  const tenant = await findTenant(installation, slug);
  const user = await installation.control.em.fork().findOne(User, { tenant: tenant.id, email: normaliseEmail(email) });
  if (!user) throw new OperatorError(`${slug} has no user ${normaliseEmail(email)}`);
  return user;
}
