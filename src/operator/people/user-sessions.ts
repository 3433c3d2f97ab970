import { revokeSession, revokeSessionsOf, unexpired } from '../../auth/sessions.ts';
import { Session } from '../../control/control-entities.ts';
import { transactControl } from '../../control/database.ts';
import { isUuid } from '../../http/uuid.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { isoTime } from '../../postgres/iso-time.ts';
import { readTenant } from '../tenants/read-tenants.ts';
import { findTenant } from '../tenants/tenants.ts';
import { findUser } from './users.ts';

/** A session that is neither revoked nor expired. */
export interface OpenSession {
  id: string;
  email: string;
  createdAt: string;
  refreshedAt: string;
}

/** Returns the open sessions of a tenant, or of one of its users, newest first. */
export async function listSessions(installation: Installation, slug: string, email?: string): Promise<OpenSession[]> {
  const { id } = await readTenant(installation, slug);
  const user = email === undefined ? null : (await findUser(installation, slug, email)).id;
  return installation.statements.execute(
    `select s.id, u.email, ${isoTime('s.created_at')} as "createdAt", ${isoTime('s.refreshed_at')} as "refreshedAt"
       from (select * from sessions where tenant_id = ? and revoked_at is null and ${unexpired}) s
       join users u on u.id = s.user_id
      where ?::bigint is null or s.user_id = ? order by s.created_at desc`,
    [id, user, user],
  );
}

/** Which sessions are revoked: one, or all of a user. */
export type RevokedSessions = { id: string } | { email: string };

/**
 * Returns the open sessions that a revocation would end, and changes nothing.
 * @throws {OperatorError} when the tenant has no such session or user
 */
export async function planSessionRevocation(
  installation: Installation,
  slug: string,
  which: RevokedSessions,
): Promise<OpenSession[]> {
  if ('email' in which) return listSessions(installation, slug, which.email);
  const found = (await listSessions(installation, slug)).filter(({ id }) => id === which.id.toLowerCase());
  if (found.length === 0) throw noSuchSession(slug, which.id);
  return found;
}

/**
 * Revokes one session of a tenant, or all sessions of a user. Every process refuses their tokens within a second.
 * @throws {OperatorError} when the tenant has no such session or user
 */
export async function revokeSessions(installation: Installation, slug: string, which: RevokedSessions): Promise<void> {
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

function noSuchSession(slug: string, id: string): OperatorError {
  return new OperatorError(`${slug} has no session ${id}. List its open sessions: npx backoffice session list ${slug}`);
}
