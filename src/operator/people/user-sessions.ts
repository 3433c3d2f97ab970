import { raw } from '@mikro-orm/postgresql';
import { revokeSession, revokeSessionsOf, unexpired } from '../../auth/sessions.ts';
import { transactControl } from '../../control/database.ts';
import { Session } from '../../control/user-entities.ts';
import { isUuid } from '../../http/uuid.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { findTenant } from '../tenants/tenants.ts';
import { findUser } from './users.ts';

/** Returns the open sessions of a tenant, or of one of its users, newest first. */
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

/**
 * Revokes one session of a tenant, or all sessions of a user. Every process refuses their tokens within a second.
 * @throws {OperatorError} when the tenant has no such session or user
 */
export async function revokeSessions(
  installation: Installation,
  slug: string,
  which: { id: string } | { email: string },
): Promise<void> {
  if ('email' in which) {
    const user = await findUser(installation, slug, which.email);
    return transactControl(installation.control, query => revokeSessionsOf(query, user.id, 'operator'));
  }
  const tenant = await findTenant(installation, slug);
  const session =
    isUuid(which.id.toLowerCase()) &&
    (await installation.control.em.fork().findOne(Session, { id: which.id, tenant: tenant.id }));
  if (!session) throw noSuchSession(slug, which.id);
  await revokeSession(installation.control, session.id, 'operator');
}

export function noSuchSession(slug: string, id: string): OperatorError {
  return new OperatorError(`${slug} has no session ${id}. List its open sessions: npx backoffice session list ${slug}`);
}
