import { z } from 'zod';
import { fieldProblem } from '../errors.ts';
import { clientNetwork } from '../http/client-address.ts';
import { bodyLimits } from '../http/route.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import type { AuthServices } from './auth-services.ts';
import { confirmRegistration } from './registration-token.ts';

/** The same problem for an unknown, used, expired or foreign token. */
export const invalidMailToken = () => fieldProblem('token', 'is invalid, used or expired', 'invalid_token');

/** Confirms an e-mail address by the token that was sent to it. */
export function confirm({ control }: AuthServices): TenantRoute {
  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/confirm',
    access: 'anonymous',
    rateLimit: 'account',
    tag: 'Authentication',
    summary: 'Confirm an e-mail address',
    description: 'Password and names become those of the registration that the token was sent for.',
    body: z.object({ token: z.string().min(1).describe('The token of the mail.') }),
    example: { token: 'the token of the mail' },
    bodyLimit: bodyLimits.auth,
    handler: async ({ body }, { tenant, origin, deadline }) => {
      const network = clientNetwork(origin.ipAddress);
      if (!(await confirmRegistration(control, tenant.id, body.token, network, deadline))) throw invalidMailToken();
    },
  });
}
