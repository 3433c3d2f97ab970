import { z } from 'zod';
import { Session } from '../../control/control-entities.ts';
import { type ControlDatabase, transactControl } from '../../control/database.ts';
import { describeFields, guid, timestamp } from '../../lib/http/request/fields.ts';
import { isUuid } from '../../lib/http/request/uuid.ts';
import { problem } from '../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { requireMayManage } from '../../tenancy/permission-rules.ts';
import type { AuthServices } from './auth-services.ts';
import { listActiveSessions, revokeSession } from './sessions.ts';

const view = describeFields(
  { id: guid(), createdAt: timestamp(), refreshedAt: timestamp(), current: z.boolean() },
  {
    id: 'The id of the session, for `DELETE`.',
    createdAt: 'When the user logged in.',
    refreshedAt: 'When the tokens of the session were last exchanged.',
    current: 'Whether it is the session of this request.',
  },
).meta({ title: 'Session' });
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
      problems: ['forbidden'],
      tag: 'Authentication',
      summary: 'End a session',
      description:
        'Your own or, with the permission `users.manage` and the scope `All`, that of a ' +
        'user whose permissions you all have. Ending an unknown session succeeds.',
      handler: async ({ params: { id = '' } }, { caller, tenant, actor }) => {
        if (!isUuid(id.toLowerCase())) return;
        const found = { id, tenant: tenant.id };
        const session = await control.em
          .fork()
          .findOne(Session, found, { populate: ['user.role'] });
        if (!session) return;

        if (session.user.id !== caller.userId) {
          // A caller who manages nobody gets the response for an unknown session, so it
          // discloses no id.
          if (caller.scope !== 'All' || !caller.permissions.has('users.manage')) return;
          requireMayManage(session.user.role.permissions, caller.permissions);
        }

        await revokeSession(control, session.id, 'ended', actor);
        directory.invalidateSession(session.id);
      },
    }),
  ];
}

const revokeToken = `
  update legacy_tokens set revoked_at = now() where hash = decode($1, 'hex') and revoked_at is null`;

/** Revokes one token of an API client; every process refuses it within 1 s. */
async function revokeLegacyToken(control: ControlDatabase, hash: string): Promise<void> {
  await transactControl(control, async query => {
    await query('revoke_legacy_token', revokeToken, [hash]);
  });
}

/**
 * Revokes the session of the access token. A legacy token has no session, and is revoked itself:
 * the other tokens of its client stay.
 */
export function logout({ control, directory }: AuthServices): TenantRoute {
  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/logout',
    access: 'user',
    tag: 'Authentication',
    summary: 'End the current session',
    description:
      'With a legacy token, revokes that token. A program has no session: its keys are revoked at ' +
      '`/api/v1/Programs/{id}/keys/{keyId}`.',
    problems: ['wrong_state'],
    handler: async (_input, { caller }) => {
      const { legacyTokenHash } = caller;
      if (caller.program) {
        throw problem('wrong_state', { detail: 'A program has no session. Revoke its key.' });
      }

      if (legacyTokenHash) {
        await revokeLegacyToken(control, legacyTokenHash);
        directory.invalidateLegacyToken(legacyTokenHash);
        return;
      }

      await revokeSession(control, caller.sessionId, 'logout');
      directory.invalidateSession(caller.sessionId);
    },
  });
}
