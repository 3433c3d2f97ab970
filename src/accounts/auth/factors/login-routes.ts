import { z } from 'zod';
import { transactControl } from '../../../control/database.ts';
import { problem } from '../../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../../tenancy/define-route.ts';
import type { AuthServices } from '../auth-services.ts';
import { loginResponse } from '../issue-tokens.ts';
import { codeField } from './check-code.ts';
import {
  afterFirstProof,
  type Completion,
  completeLogin,
  loginRoute,
  notingWrongProof,
  requireChallenge,
  requireOpenAccount,
  setUpLogin,
  setupToken,
} from './complete-login.ts';
import { factorName, totpView } from './factor-fields.ts';
import { checkProof, errorsOfProof, proofFields } from './factor-proof.ts';
import { addTotp, confirmTotp } from './factor-store.ts';
import { setPerson } from './login-actor.ts';
import { passkeyLoginRoutes } from './passkey-login.ts';
import { passkeySetUpRoutes } from './passkey-setup.ts';

/** The routes that complete a login whose password was right. */
export function loginRoutes(services: AuthServices): TenantRoute[] {
  return [
    verifyLogin(services),
    setUp(services),
    confirmSetUp(services),
    ...passkeySetUpRoutes(services),
    ...passkeyLoginRoutes(services),
  ];
}

function verifyLogin(services: AuthServices): TenantRoute {
  return defineRoute({
    ...loginRoute,
    path: '/api/v1/auth/login/verify',
    summary: 'Complete a login by a second factor',
    description:
      'Takes the `challenge` of a login that was refused with `second_factor_required`, once, ' +
      'with at most five codes or passkeys. After ten wrong codes in 24 hours, only recovery codes ' +
      'and passkeys are accepted for the rest of them.',
    body: z.object({
      challenge: z.string().max(100).describe('The `challenge` of the refused login.'),
      ...proofFields,
    }),
    example: { challenge: 'the challenge of the refused login', code: '123456' },
    problems: ['invalid_challenge', 'invalid_code', 'invalid_passkey'],
    response: loginResponse,
    checkValid: async ({ body, errors }) =>
      Object.keys(proofFields).some(field => errors[field]) ? {} : errorsOfProof(body),
    handler: async ({ body }, context) => {
      const errors = errorsOfProof(body);
      if (Object.keys(errors).length > 0) throw problem('validation_failed', { errors });

      const { challenge, owner } = await requireChallenge(services, context, {
        challenge: body.challenge,
        purpose: 'verify',
        isTried: true,
      });

      return notingWrongProof(services, context, afterFirstProof(challenge), async () => {
        const proof = await checkProof(services, context, owner, body, body.challenge);

        return completeLogin(services, context, challenge, owner, {
          method: proof.method,
          prove: proof.take,
        });
      });
    },
  });
}

function setUp(services: AuthServices): TenantRoute {
  return defineRoute({
    ...loginRoute,
    path: '/api/v1/auth/login/setup',
    summary: 'Begin to set up an app as the second factor that a role requires',
    description:
      'For a login that was refused with `second_factor_setup_required`. Confirm the factor by ' +
      'its first code, by the request below. A passkey is another way.',
    body: z.object({ setupToken, name: factorName }),
    example: { setupToken: 'the setupToken of the refused login', name: 'My phone' },
    problems: ['invalid_challenge', 'limit_reached'],
    response: totpView,
    status: 201,
    handler: async ({ body }, context) => {
      const { challenge, owner } = await requireChallenge(services, context, {
        challenge: body.setupToken,
        purpose: 'setup',
        isTried: false,
      });

      const { id, key } = await transactControl(services.control, async query => {
        const account = await requireOpenAccount(query, owner, challenge);
        if (account.factors > 0) throw problem('invalid_challenge');
        await setPerson(query, owner, context, account);
        const naming = { name: body.name, issuer: context.tenant.name };

        return addTotp(query, services, owner, account, naming);
      });
      return { id, secret: key.text, url: key.url };
    },
  });
}

function confirmSetUp(services: AuthServices): TenantRoute {
  return defineRoute({
    ...loginRoute,
    path: '/api/v1/auth/login/setup/confirm',
    summary: 'Confirm the app that a role requires, and complete the login',
    body: z.object({ setupToken, code: codeField() }),
    example: { setupToken: 'the setupToken of the refused login', code: '123456' },
    problems: ['invalid_challenge', 'invalid_code'],
    response: setUpLogin,
    handler: async ({ body }, context) => {
      const { challenge, owner } = await requireChallenge(services, context, {
        challenge: body.setupToken,
        purpose: 'setup',
        isTried: true,
      });

      let recoveryCodes: string[] = [];
      const completion: Completion = {
        method: 'otp',
        prove: async (query, account) => {
          if (account.factors > 0) throw problem('invalid_challenge');
          const factor = { id: null, code: body.code };
          recoveryCodes = await confirmTotp(query, services, owner, account, factor);
        },
      };
      const tokens = await notingWrongProof(services, context, afterFirstProof(challenge), () =>
        completeLogin(services, context, challenge, owner, completion),
      );
      return { ...tokens, recoveryCodes };
    },
  });
}
