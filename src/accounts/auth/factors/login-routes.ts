import { z } from 'zod';
import { type QueryControl, transactControl } from '../../../control/database.ts';
import { bodyLimits } from '../../../lib/http/route.ts';
import { hasCode, problem } from '../../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../../tenancy/define-route.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { AuthServices } from '../auth-services.ts';
import { issueTokens, loadTokenHolder, loginResponse } from '../issue-tokens.ts';
import { loginClient } from '../login-client.ts';
import type { RefreshToken } from '../refresh-token.ts';
import { insertSessionOf } from '../sessions.ts';
import { type Challenge, findChallenge, takeChallenge } from './challenges.ts';
import { type CodeOwner, codeField } from './check-code.ts';
import { confirmedFactor, factorName, totpView } from './factor-fields.ts';
import { checkProof, errorsOfProof, proofFields } from './factor-proof.ts';
import { addTotp, confirmTotp, type LockedAccount, lockAccountOf } from './factor-store.ts';
import { setPerson } from './login-actor.ts';
import { passkeyLoginRoutes } from './passkey-login.ts';

const common = {
  method: 'POST',
  access: 'anonymous',
  tag: 'Authentication',
  bodyLimit: bodyLimits.auth,
  rateLimit: 'login',
} as const;
const setupToken = z.string().max(100).describe('The `setupToken` of the refused login.');

/** The routes that complete a login whose password was right. */
export function loginRoutes(services: AuthServices): TenantRoute[] {
  return [
    verifyLogin(services),
    setUp(services),
    confirmSetUp(services),
    ...passkeyLoginRoutes(services),
  ];
}

function verifyLogin(services: AuthServices): TenantRoute {
  return defineRoute({
    ...common,
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

      return notingWrongProof(services, context, owner, async () => {
        const proof = await checkProof(services, context, owner, body, body.challenge);

        return completeLogin(services, context, challenge, owner, {
          methods: ['pwd', proof.method],
          prove: proof.take,
        });
      });
    },
  });
}

function setUp(services: AuthServices): TenantRoute {
  return defineRoute({
    ...common,
    path: '/api/v1/auth/login/setup',
    summary: 'Begin to set up the second factor that a role requires',
    description:
      'For a login that was refused with `second_factor_setup_required`. Confirm the factor by ' +
      'its first code, by the request below.',
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
    ...common,
    path: '/api/v1/auth/login/setup/confirm',
    summary: 'Confirm the second factor that a role requires, and complete the login',
    body: z.object({ setupToken, code: codeField() }),
    example: { setupToken: 'the setupToken of the refused login', code: '123456' },
    problems: ['invalid_challenge', 'invalid_code'],
    response: loginResponse.extend(confirmedFactor.shape).meta({ title: 'SetUpLogin' }),
    handler: async ({ body }, context) => {
      const { challenge, owner } = await requireChallenge(services, context, {
        challenge: body.setupToken,
        purpose: 'setup',
        isTried: true,
      });

      let recoveryCodes: string[] = [];
      const completion: Completion = {
        methods: ['pwd', 'otp'],
        prove: async (query, account) => {
          if (account.factors > 0) throw problem('invalid_challenge');
          const factor = { id: null, code: body.code };
          recoveryCodes = await confirmTotp(query, services, owner, account, factor);
        },
      };
      const tokens = await notingWrongProof(services, context, owner, () =>
        completeLogin(services, context, challenge, owner, completion),
      );
      return { ...tokens, recoveryCodes };
    },
  });
}

interface SentChallenge {
  readonly challenge: string;
  readonly purpose: 'verify' | 'setup';
  /** True to count a code that it is sent with. */
  readonly isTried: boolean;
}

/** @throws {Problem} `invalid_challenge` */
async function requireChallenge(
  { control }: Pick<AuthServices, 'control'>,
  { tenant }: RequestContext,
  { challenge, purpose, isTried }: SentChallenge,
): Promise<{ challenge: Challenge; owner: CodeOwner }> {
  const sent = { tenantId: tenant.id, challenge, purpose };
  const found = await findChallenge(control, sent, isTried);
  if (!found) throw problem('invalid_challenge');

  const owner = { tenantId: tenant.id, tenantGuid: tenant.guid, userId: found.userId };
  return { challenge: found, owner };
}

/**
 * Locks the account of a challenge.
 * @throws {Problem} `invalid_challenge` when the person has a new password or is disabled
 */
async function requireOpenAccount(
  query: QueryControl,
  owner: CodeOwner,
  { password }: Challenge,
): Promise<LockedAccount> {
  const account = await lockAccountOf(query, owner);
  if (!account.mayLogIn || !account.password.equals(password)) throw problem('invalid_challenge');

  return account;
}

interface Completion {
  /** The proofs of the login, by RFC 8176. */
  readonly methods: readonly string[];
  /** Takes the proof of the factor. */
  readonly prove: (query: QueryControl, account: LockedAccount) => Promise<void>;
}

/**
 * Ends a challenge and opens the session of its login, in one transaction.
 * @throws {Problem} `invalid_challenge`, and those of `prove`: nothing has changed then
 */
async function completeLogin(
  services: AuthServices,
  context: RequestContext,
  challenge: Challenge,
  owner: CodeOwner,
  { methods, prove }: Completion,
): Promise<z.input<typeof loginResponse>> {
  const { tenant, origin } = context;
  const holder = await loadTokenHolder(services, context, owner.userId);
  if (!holder) throw problem('invalid_challenge');

  const client = loginClient(origin);
  const token = await transactControl(services.control, async (query): Promise<RefreshToken> => {
    const account = await requireOpenAccount(query, owner, challenge);
    await setPerson(query, owner, context, account);
    await prove(query, account);
    if (!(await takeChallenge(query, challenge))) throw problem('invalid_challenge');

    const { passwordIsShort } = challenge;

    return insertSessionOf(query, holder.user, client, { methods, passwordIsShort });
  });

  return issueTokens(services, tenant, holder, token, methods);
}

/** Completes a login, and notes one whose proof is wrong as a failed login. */
async function notingWrongProof<Result>(
  { failedLogins }: Pick<AuthServices, 'failedLogins'>,
  { origin }: RequestContext,
  { tenantId, userId }: CodeOwner,
  complete: () => Promise<Result>,
): Promise<Result> {
  try {
    return await complete();
  } catch (error) {
    const isPasskey = hasCode(error, 'invalid_passkey');
    if (isPasskey || hasCode(error, 'invalid_code')) {
      failedLogins.note({
        tenantId,
        userId,
        methods: ['pwd', isPasskey ? 'pop' : 'otp'],
        reason: isPasskey ? 'invalid_passkey' : 'invalid_code',
        client: loginClient(origin),
      });
    }
    throw error;
  }
}
