import { problem } from '../lib/problems.ts';

/**
 * Requires that the caller has each permission that a role grants. Called before a change of
 * the role, and before its assignment.
 * @param granted the permissions of a role
 * @throws {Problem} `forbidden`, which names the missing permissions
 */
export function requireMayGrant(granted: readonly string[], held: ReadonlySet<string>): void {
  requireAll(granted, held, 'You cannot grant permissions that you do not have');
}

/**
 * Requires that the caller has each permission of the person who is managed, or of the role
 * that is changed.
 * @throws {Problem} `forbidden`, which names the missing permissions
 */
export function requireMayManage(permissions: readonly string[], held: ReadonlySet<string>): void {
  requireAll(permissions, held, 'You cannot manage who has permissions that you do not have');
}

function requireAll(
  permissions: readonly string[],
  held: ReadonlySet<string>,
  reason: string,
): void {
  const missing = permissions.filter(permission => !held.has(permission)).sort();
  if (missing.length === 0) return;
  const challenge = `Bearer error="insufficient_scope", scope="${missing.join(' ')}"`;
  throw problem('forbidden', {
    detail: `${reason}: ${missing.join(', ')}.`,
    headers: { 'WWW-Authenticate': challenge },
  });
}
