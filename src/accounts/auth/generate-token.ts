import { createHash } from 'node:crypto';
import { z } from 'zod';
import { LegacyToken } from '../../control/control-entities.ts';
import { createLegacyToken } from '../../control/legacy-token.ts';
import { timestamp } from '../../lib/http/request/fields.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import type { AuthServices } from './auth-services.ts';
import { basicAuthRequired } from './authenticate.ts';
import { entityTypeOf } from './issue-tokens.ts';
import { removeExpired } from './remove-expired.ts';

const lifetimeMs = 90 * 24 * 3_600_000;

const tokensPerClient = 20;

/** Deletes the oldest tokens of a client that already has as many as it may. */
const removeSurplus = `
  delete from legacy_tokens where hash in (
    select hash from legacy_tokens where client_id = ? and revoked_at is null and expires_at > now()
     order by created_at desc, hash offset ${tokensPerClient - 1})`;

/** Issues a legacy token for the user of an API client. */
export function generateToken({ control, tokens }: AuthServices): TenantRoute {
  return defineRoute({
    method: 'GET',
    path: '/api/Data/GenerateToken',
    access: 'client',
    rateLimit: 'token',
    tag: 'Authentication',
    summary: 'Issue a token to an API client',
    description:
      'Deprecated. Needs `Authorization: Basic` of an API client. The token is valid for 90 ' +
      'days, or until the client has 20 newer ones.',
    response: z.object({
      token: z.string().describe('Send it as `X-Api-Token`, or as `Authorization: Bearer …`.'),
      expiresAt: timestamp().describe('When the token ends.'),
    }),
    handler: async (_input, context) => {
      const { caller, tenant } = context;
      const token = createLegacyToken();
      const expiresAt = new Date(tokens.now() * 1_000 + lifetimeMs);
      const entityType = await entityTypeOf(caller, context);

      await control.em.fork().transactional(async em => {
        // The lock makes a concurrent revocation of the client wait until this token is stored,
        // and then revoke it too; and it makes other tokens of the client wait, so that their
        // number is limited.
        const [client] = await em.execute<object[]>(
          'select from api_clients where id = ? and revoked_at is null for no key update',
          [caller.tokenId],
        );
        if (!client) throw basicAuthRequired();

        await removeExpired(em);
        await em.execute(removeSurplus, [caller.tokenId]);
        await em.insert(LegacyToken, {
          hash: createHash('sha256').update(token).digest(),
          tenant: tenant.id,
          user: caller.userId,
          client: caller.tokenId,
          entityType,
          expiresAt,
        });
      });

      return { token, expiresAt: expiresAt.toISOString() };
    },
  });
}
