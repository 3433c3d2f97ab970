import { z } from 'zod';
import { type QueryControl, setActor, transactControl } from '../../control/database.ts';
import { mayUsePassword } from '../../control/password-logins.ts';
import { clientNetwork } from '../../lib/http/request/client-address.ts';
import { email } from '../../lib/http/request/email.ts';
import { bodyLimits } from '../../lib/http/route.ts';
import { problem } from '../../lib/problems.ts';
import type { FieldErrors } from '../../lib/runtime/field-error.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { requestResetMail } from '../mails/mail-requests.ts';
import { recordSetPassword, useLink, withdrawRegistrationsOf } from '../mails/use-link.ts';
import type { AuthServices } from './auth-services.ts';
import { forgetWrongCodes } from './factors/check-code.ts';
import { hashRequester } from './hash-queue.ts';
import { acceptInvitation } from './identities/accept-invitation.ts';
import { idTokenField } from './identities/id-token-field.ts';
import { rememberNetwork } from './login-networks.ts';
import {
  accountWords,
  minPasswordLength,
  newPassword,
  passwordRules,
  passwordsRefused,
  requireNewPassword,
} from './new-password.ts';
import { acceptedResponse, invalidMailToken } from './register.ts';
import { revokeSessionsOf, setPasswordHash } from './sessions.ts';

const request = (services: AuthServices) =>
  z.object({
    email: email()
      .optional()
      .describe('The address of the user who receives a mail. Send it alone, for step 1.'),
    token: z
      .string()
      .min(1)
      .optional()
      .describe('The token of the mail. Send it with `newPassword`, for step 2.'),
    newPassword: newPassword(services, true)
      .optional()
      .describe(`The password to set. ${passwordRules}`),
    idToken: idTokenField
      .optional()
      .describe(
        'In place of `newPassword`, with the token of an invitation: an ID token of a provider of ' +
          'the tenant, with a `nonce`, at most ten minutes old. It is good once.',
      ),
  });

/**
 * Resets a password in two steps at one path. Step 1: an e-mail address requests a mail; the
 * response is the same for an unknown address. Step 2: the token of the mail sets the new
 * password. The token of an invitation sets the first one, or links an identity at a provider
 * in its place.
 */
export function resetPassword(services: AuthServices): TenantRoute {
  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/reset-password',
    access: 'anonymous',
    rateLimit: 'account',
    tag: 'Authentication',
    summary: 'Request a mail with a token for a new password, or set the password',
    description:
      'With `email`: 202, and a mail if the address is known: for a new password, or, if ' +
      'the account is not ready for one, with what helps (see the guide, *Accounts*). With ' +
      '`newPassword` and `token` (from that mail, valid once, for an hour): 204, and all ' +
      'sessions of the user end. The token of an invitation (valid once, for 7 days) sets the ' +
      'first password in the same way; with `idToken` in place of it, the person logs in by the ' +
      'provider, with a further ID token (`POST /api/v1/auth/exchange`).',
    body: request(services),
    example: { email: 'you@example.com' },
    bodyLimit: bodyLimits.auth,
    response: acceptedResponse,
    status: 202,
    mayBeEmpty: true,
    problems: ['invalid_id_token', 'limit_reached', 'migration_pending', 'wrong_state'],
    handler: async ({ body }, context) => {
      const { email, token, newPassword, idToken } = body;
      const errors = errorsOfSteps(name => body[name] !== undefined);
      if (Object.keys(errors).length > 0) throw problem('validation_failed', { errors });

      if (email !== undefined) {
        await requestReset(services, context, email);
        return { status: 'accepted' as const };
      }

      const isUsed =
        idToken === undefined
          ? await setPasswordByLink(services, context, token ?? '', newPassword ?? '')
          : await acceptInvitation(services, context, token ?? '', idToken);
      if (!isUsed) throw invalidMailToken();

      return undefined;
    },
    checkValid: async ({ body, errors }) =>
      errorsOfSteps(name => body[name] !== undefined || Object.hasOwn(errors, name)),
  });
}

/** Returns the errors of a body that has the fields of both steps, or not all of one. */
function errorsOfSteps(
  isGiven: (name: keyof ReturnType<typeof request>['shape']) => boolean,
): FieldErrors {
  const [email, token] = [isGiven('email'), isGiven('token')];
  const [newPassword, idToken] = [isGiven('newPassword'), isGiven('idToken')];
  if (email === (token || newPassword || idToken)) {
    const message = 'is required, or token and newPassword instead';
    return { email: [{ message, code: 'required' }] };
  }
  if (email) return {};

  const required: FieldErrors[string] = [{ message: 'is required', code: 'required' }];
  return {
    ...(token ? {} : { token: required }),
    ...(newPassword || idToken ? {} : { newPassword: required }),
    ...(newPassword && idToken
      ? { idToken: [{ message: 'must not stand beside newPassword', code: 'not_applicable' }] }
      : {}),
  };
}

/**
 * Stores the request for a new password. A worker sends a known address the mail that fits its
 * state (`findRecipient`). Takes the same time for every address.
 */
export async function requestReset(
  { control, mails }: Pick<AuthServices, 'control' | 'mails'>,
  { tenant, origin }: Pick<RequestContext, 'tenant' | 'origin'>,
  address: string,
): Promise<void> {
  await requestResetMail(control, { tenantId: tenant.id, address, traceId: origin.traceId });
  mails.wake();
}

/**
 * Sets the password that the token of a reset or of an invitation permits to set.
 * @returns false when the token is not valid
 * @throws {Problem} `validation_failed` for a password of words of the account; `wrong_state`
 *   when the tenant refuses passwords of the user
 */
export async function setPasswordByLink(
  services: AuthServices,
  context: RequestContext,
  token: string,
  password: string,
): Promise<boolean> {
  // Hashed before the transaction, to keep the transaction short.
  const passwordHash = await services.passwords.hash(password, hashRequester(context));
  return transactControl(
    services.control,
    query => usePasswordLink(query, services, context, { token, password, passwordHash }),
    {
      deadline: context.deadline,
      isRepeatable: false,
    },
  );
}

const confirmInvited =
  'update users set confirmed_at = now() where id = $1 and confirmed_at is null';

interface LinkPassword {
  readonly token: string;
  readonly password: string;
  readonly passwordHash: string;
}

/**
 * Sets a password, and makes the link that permits it void. A reset revokes all sessions of the
 * user; an invitation confirms the address, and ends its registrations, whose senders have
 * chosen other passwords. The user is the actor in the audit log. The link stays good when the
 * password is refused.
 * @throws {Problem} those of `setPasswordByLink`
 */
async function usePasswordLink(
  query: QueryControl,
  services: Pick<AuthServices, 'secrets' | 'passwordMinLength'>,
  { tenant, origin }: Pick<RequestContext, 'tenant' | 'origin'>,
  { token, password, passwordHash }: LinkPassword,
): Promise<boolean> {
  const link = await useLink(query, services.secrets, tenant, ['invitation', 'reset'], token);
  if (!link) return false;
  if (!mayUsePassword(tenant, link.userId)) throw passwordsRefused();
  requireNewPassword('newPassword', password, {
    minLength: minPasswordLength(services.passwordMinLength, link.hasFactor),
    words: accountWords(link, tenant),
  });

  const { userId, userGuid, kind } = link;
  const { ipAddress, traceId } = origin;
  await setActor(query, JSON.stringify({ userId, userGuid, ipAddress, traceId }));
  if (kind === 'invitation') {
    await query('confirm_invited', confirmInvited, [userId]);
    await withdrawRegistrationsOf(query, userId);
  }
  // First, so that the notice of the new password says which passkeys it holds.
  await recordSetPassword(query, link, passwordHash);
  await setPasswordHash(query, userId, passwordHash);
  await revokeSessionsOf(query, userId, 'password_reset');
  await forgetWrongCodes(query, userId);

  // The token proves that the client reads the mails of the user.
  await rememberNetwork(query, userId, clientNetwork(ipAddress));
  return true;
}
