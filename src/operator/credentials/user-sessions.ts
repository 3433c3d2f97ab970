import { revokeSession, revokeSessionsOf, unexpired } from '../../accounts/auth/sessions.ts';
import { transactControl } from '../../control/database.ts';
import type { Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { readTenant } from '../registry/read-tenants.ts';
import { findUser } from './users.ts';

/** A session that is neither revoked nor expired. */
export interface OpenSession {
  id: string;
  email: string;
  createdAt: string;
  refreshedAt: string;
}

/** Returns the open sessions of a tenant, or of one of its users, newest first. */
export async function listSessions(
  installation: Installation,
  slug: string,
  email?: string,
): Promise<OpenSession[]> {
  const { id } = await readTenant(installation, slug);
  const user = email === undefined ? null : (await findUser(installation, slug, email)).id;
  const { rows } = await installation.statements.query<OpenSession>(
    `select s.id, u.email, ${isoTime('s.created_at')} as "createdAt", ${isoTime('s.refreshed_at')} as "refreshedAt"
       from (select * from sessions where tenant_id = $1 and revoked_at is null and ${unexpired}) s
       join users u on u.id = s.user_id
      where $2::bigint is null or s.user_id = $2 order by s.created_at desc`,
    [id, user],
  );

  return rows;
}

/**
 * Revokes one open session of a tenant, or all of a user. Every process refuses their tokens
 * within a second.
 * @param isDryRun true to revoke nothing
 * @returns the sessions that were open
 * @throws {OperatorError} when the tenant has no such session or user
 */
export async function revokeSessions(
  installation: Installation,
  slug: string,
  which: { id: string } | { email: string },
  isDryRun = false,
): Promise<OpenSession[]> {
  const control = await installation.control();
  if ('email' in which) {
    const user = await findUser(installation, slug, which.email);
    const sessions = await listSessions(installation, slug, which.email);
    if (!isDryRun) {
      await transactControl(control, query => revokeSessionsOf(query, user.id, 'operator'));
    }
    return sessions;
  }

  const id = which.id.toLowerCase();
  const sessions = (await listSessions(installation, slug)).filter(session => session.id === id);
  if (sessions.length === 0) {
    throw new OperatorError(
      `${slug} has no session ${id}. List its open sessions: bin/backoffice session list ${slug}`,
    );
  }

  if (!isDryRun) await revokeSession(control, id, 'operator');
  return sessions;
}
