import { z } from 'zod';
import { problem } from '../errors.ts';
import { bodyLimits } from '../http/route.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import type { AuthServices } from './auth-services.ts';
import { issueTokens, loadTokenHolder, loginResponse } from './issue-tokens.ts';
import { decodeRefreshToken } from './refresh-token.ts';
import { rotateSession } from './sessions.ts';

/** Exchanges a refresh token, which is valid once, for a new pair of tokens. All failures get the same response. */
export function refresh(services: AuthServices): TenantRoute {
  const { control, directory, secrets, log } = services;
  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/refresh',
    access: 'anonymous',
    problems: ['invalid_refresh_token'],
    tag: 'Authentication',
    summary: 'Exchange a refresh token for a new pair of tokens',
    body: z.object({ refreshToken: z.string().min(1).describe('The refresh token of the last login or refresh.') }),
    example: { refreshToken: 'the refreshToken of the last login or refresh' },
    bodyLimit: bodyLimits.auth,
    response: loginResponse,
    handler: async ({ body }, context) => {
      const { tenant } = context;
      const token = decodeRefreshToken(body.refreshToken, tenant.guid, secrets);
      if (!token) throw problem('invalid_refresh_token', { reason: 'signature' });
      // Everything is loaded before the rotation, so no client loses its session while the tenant database is down.
      const session = await directory.session(token.sessionId);
      const holder = session && (await loadTokenHolder(services, context, session.userId));
      if (!holder) throw problem('invalid_refresh_token', { reason: session ? 'user' : 'session' });
      const rotation = await rotateSession(control, tenant.id, token, context.deadline);
      if (rotation.outcome === 'reused') {
        log.warn(
          {
            event: 'refresh_token_reused',
            tenant: tenant.guid,
            session: token.sessionId,
            traceId: context.origin.traceId,
          },
          'a refresh token was reused: its session is revoked',
        );
      }
      if (rotation.outcome !== 'rotated')
        throw problem('invalid_refresh_token', { reason: rotation.outcome === 'reused' ? 'reused' : 'session' });
      return issueTokens(services, tenant, holder, rotation.successor);
    },
  });
}
