import { z } from 'zod';
import { Session } from '../control/user-entities.ts';
import { timestamp } from '../http/fields.ts';
import { isUuid } from '../http/uuid.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import type { AuthServices } from './auth-services.ts';
import { listActiveSessions, revokeSession } from './sessions.ts';

const view = z
  .object({ id: z.string(), createdAt: timestamp(), refreshedAt: timestamp(), current: z.boolean() })
  .meta({ title: 'Session' });
const path = '/api/v1/auth/sessions';

/** Lists the caller's sessions and ends one of them. */
export function sessionRoutes({ control, directory }: AuthServices): TenantRoute[] {
  return [
    defineRoute({
      method: 'GET',
      path,
      access: 'user',
      tag: 'Authentication',
      summary: 'Your sessions, the newest first',
      response: z.array(view),
      handler: async (_input, { caller }) => {
        const sessions = await listActiveSessions(control, caller.userId);
        return sessions.map(session => ({
          id: session.id,
          createdAt: session.createdAt.toISOString(),
          refreshedAt: session.refreshedAt.toISOString(),
          current: session.id === caller.sessionId,
        }));
      },
    }),
    defineRoute({
      method: 'DELETE',
      path: `${path}/:id`,
      access: 'user',
      tag: 'Authentication',
      summary: 'End a session',
      description:
        'Your own or, with the permission `users.manage`, that of any user. Ending an unknown session succeeds.',
      handler: async ({ params: { id = '' } }, { caller, tenant, actor }) => {
        if (!isUuid(id.toLowerCase())) return;
        const session = await control.em.fork().findOne(Session, { id, tenant: tenant.id });
        // The session of another user gets the same response as an unknown one, so the response discloses no id.
        const mayEnd = session?.user.id === caller.userId || caller.permissions.has('users.manage');
        if (!session || !mayEnd) return;
        await revokeSession(control, session.id, 'ended', actor);
        directory.invalidateSession(session.id);
      },
    }),
  ];
}
