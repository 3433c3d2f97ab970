import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import type { AuthServices } from './auth-services.ts';
import { revokeSession } from './sessions.ts';

/** Revokes the session of the access token. A legacy token has no session, so nothing happens. */
export function logout({ control, directory }: AuthServices): TenantRoute {
  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/logout',
    access: 'user',
    tag: 'Authentication',
    summary: 'End the current session',
    handler: async (_input, { caller }) => {
      if (caller.sessionId === '') return;
      await revokeSession(control, caller.sessionId, 'logout');
      directory.invalidateSession(caller.sessionId);
    },
  });
}
