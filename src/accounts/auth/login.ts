import { z } from 'zod';
import { queryControl } from '../../control/database.ts';
import { isSignInAllowed, mayUsePassword } from '../../control/password-logins.ts';
import { email } from '../../lib/http/request/email.ts';
import { bodyLimits } from '../../lib/http/route.ts';
import { isObject } from '../../lib/narrow.ts';
import { problem } from '../../lib/problems.ts';
import { lacksSecondFactor } from '../../tenancy/caller.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import type { AuthServices } from './auth-services.ts';
import { wantedProof } from './factors/factor-proof.ts';
import type { FailedAccount } from './failed-logins.ts';
import { hashRequester } from './hash-queue.ts';
import { issueTokens, loadTokenHolder, loginResponse } from './issue-tokens.ts';
import { loginClient } from './login-client.ts';
import { isShortPassword } from './new-password.ts';
import { passwordLength } from './passwords.ts';
import { decodeRefreshToken } from './refresh-token.ts';
import { openSession, passwordOnly, rotateSession } from './sessions.ts';

const credentials = z.object({
  email: email().describe('The e-mail address of the user.'),
  // White space counts. The limit, in UTF-16 units before normalisation, admits every password
  // that can be set.
  password: z
    .string()
    .min(1)
    .max(passwordLength.max * 8)
    .describe('The password of the user.'),
});

/**
 * Returns the e-mail address of a login body in the form in which it is looked up, for the rate
 * limit; '' when there is none.
 */
export function loginAccount(body: object): string {
  const email = credentials.shape.email.safeParse('email' in body ? body.email : undefined);
  return email.success ? email.data : '';
}

/** The fields that name the completion of a login, which has no address and no password. */
const subjects = z.object({
  password: z.undefined().optional(),
  challenge: z.string().max(100).optional(),
  setupToken: z.string().max(100).optional(),
  passkey: z.object({ id: z.string().max(2_000) }).optional(),
  idToken: z.string().optional(),
});

/**
 * Returns what the body of a login, or of its completion, is about, for the limit of logins: an
 * address, a challenge, a passkey, or the person of an ID token, as it says by itself. So the
 * people behind one address do not share one limit. '' when there is none of them, and for a
 * password beside a challenge: whoever guesses passwords could send another challenge with each.
 */
export function loginSubject(body: object): string {
  const account = loginAccount(body);
  const { data } = subjects.safeParse(body);
  if (account !== '' || !data) return account;

  const { challenge, setupToken, passkey, idToken } = data;
  const person = idToken === undefined ? '' : personOfToken(idToken);
  return challenge ?? setupToken ?? passkey?.id ?? person;
}

/** Returns the part of an ID token that names its person, unchecked; '' when none does. */
function personOfToken(token: string): string {
  const [, payload = ''] = token.split('.');
  try {
    const claims: unknown = JSON.parse(Buffer.from(payload, 'base64url').toString());
    return isObject(claims) ? `${String(claims.iss)} ${String(claims.sub)}` : '';
  } catch {
    return '';
  }
}

// Nothing else is read before the password is verified, so that a known address takes no longer
// than an unknown one.
const userByEmail = `
  select id, password_hash as hash, confirmed_at is not null and disabled_at is null as "mayLogIn"
    from users where tenant_id = $1 and email = $2`;

const maxAttempts = 3; // a login starts again if the stored hash has changed since it was read

/**
 * Logs a user in. All failures get the same response after the same work: unknown address,
 * wrong password, unconfirmed or disabled user.
 */
export function login(services: AuthServices): TenantRoute {
  const { control, passwords, passwordMinLength, failedLogins } = services;

  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/login',
    access: 'anonymous',
    tag: 'Authentication',
    summary: 'Log in with e-mail address and password',
    description:
      'A person with a second factor gets 401 `second_factor_required` with a `challenge`, which ' +
      '`POST /api/v1/auth/login/verify` completes within five minutes.',
    body: credentials,
    example: { email: 'admin@demo.test', password: 'the password that npm start printed' },
    bodyLimit: bodyLimits.auth,
    rateLimit: 'login',
    problems: ['invalid_credentials', 'second_factor_required', 'second_factor_setup_required'],
    response: loginResponse,
    handler: async ({ body: { email, password } }, context) => {
      const { tenant } = context;
      const requester = hashRequester(context);
      const client = loginClient(context.origin);
      let failed: FailedAccount = { userId: undefined, reason: 'wrong_password' };

      for (let attempt = 1; attempt <= maxAttempts; attempt++) {
        const [found] = await queryControl<{ id: string; hash: string; mayLogIn: boolean }>(
          control,
          'login',
          userByEmail,
          [tenant.id, email],
        );
        const matches = await passwords.verify(found?.hash, password, requester);
        const userId = found && Number(found.id);
        const isRefused = userId !== undefined && !mayUsePassword(tenant, userId);
        const isWrong = found?.mayLogIn && !matches;
        const reason = isWrong ? 'wrong_password' : 'account_inactive';
        failed = { userId, reason: isRefused ? 'password_refused' : reason };
        if (isRefused || !found?.mayLogIn || !matches) break;

        const holder = await loadTokenHolder(services, context, Number(found.id));
        if (!holder) break;

        const renewedHash = passwords.isOutdated(found.hash)
          ? await passwords.hash(password, requester)
          : undefined;

        const opening = await openSession(control, holder.user, client, {
          hash: found.hash,
          renewedHash,
          isShort: isShortPassword(password, passwordMinLength),
        });
        if (opening.outcome === 'opened') {
          return issueTokens(services, tenant, holder, opening.token, {
            methods: passwordOnly,
            idpIsFactor: false,
          });
        }
        if (opening.outcome === 'second_factor') {
          const owner = { tenantId: tenant.id, userId: holder.user.id };
          const members = await wantedProof(services, context, owner, opening.challenge);
          throw problem('second_factor_required', { members });
        }
        if (opening.outcome === 'setup') throw setupRequired(opening.setupToken);
        if (opening.outcome === 'refused') break;
      }

      failedLogins.note({ tenantId: tenant.id, ...failed, methods: passwordOnly, client });
      throw problem('invalid_credentials');
    },
  });
}

/**
 * The problem of a right password, or identity, of a person whose role requires a second factor.
 * @param setupToken undefined in a network that is not known for the account: the password
 *   alone binds no factor. A link in a mail makes the network known
 */
export function setupRequired(setupToken: string | undefined) {
  return setupToken === undefined
    ? problem('second_factor_setup_required', {
        detail:
          'You have not logged in from here lately. Ask for a mail to set a new password ' +
          '(/api/v1/auth/reset-password), use its link from here, and log in again.',
      })
    : problem('second_factor_setup_required', { members: { setupToken } });
}

/**
 * Exchanges a refresh token, which is valid once, for a new pair of tokens. All failures get
 * the same response.
 */
export function refresh(services: AuthServices): TenantRoute {
  const { control, directory, secrets, log } = services;

  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/refresh',
    access: 'anonymous',
    problems: ['invalid_refresh_token'],
    tag: 'Authentication',
    summary: 'Exchange a refresh token for a new pair of tokens',
    body: z.object({
      refreshToken: z.string().min(1).describe('The refresh token of the last login or refresh.'),
    }),
    example: { refreshToken: 'the refreshToken of the last login or refresh' },
    bodyLimit: bodyLimits.auth,
    response: loginResponse,
    handler: async ({ body }, context) => {
      const { tenant } = context;
      const token = decodeRefreshToken(body.refreshToken, tenant.guid, secrets);
      if (!token) throw problem('invalid_refresh_token', { reason: 'signature' });

      // Everything is loaded before the rotation, so no client loses its session while the
      // tenant database is down.
      const session = await directory.session(token.sessionId);
      const holder = session && (await loadTokenHolder(services, context, session.userId));
      if (!holder) throw problem('invalid_refresh_token', { reason: session ? 'user' : 'session' });
      if (lacksSecondFactor(session, holder.role)) {
        throw problem('invalid_refresh_token', { reason: 'second_factor' });
      }
      if (!isSignInAllowed(tenant, session)) {
        throw problem('invalid_refresh_token', { reason: 'sign_in_rule' });
      }

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

      if (rotation.outcome !== 'rotated') {
        throw problem('invalid_refresh_token', {
          reason: rotation.outcome === 'reused' ? 'reused' : 'session',
        });
      }

      return issueTokens(services, tenant, holder, rotation.successor, session);
    },
  });
}
