import { z } from 'zod';
import type { Role } from '../../control/control-entities.ts';
import { type ControlDatabase, type QueryControl, queryControl } from '../../control/database.ts';
import { hasFeature } from '../../control/tenant-features.ts';
import { clientNetwork } from '../../lib/http/request/client-address.ts';
import { email } from '../../lib/http/request/email.ts';
import { lengths, text } from '../../lib/http/request/fields.ts';
import { bodyLimits } from '../../lib/http/route.ts';
import { fieldProblem, problem } from '../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { requireMayGrant } from '../../tenancy/permission-rules.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { requireManager } from '../../tenancy/require-manager.ts';
import { requestRegistrationMail } from '../mails/mail-requests.ts';
import type { AuthServices } from './auth-services.ts';
import { confirmRegistration } from './confirm-registration.ts';
import { hashRequester } from './hash-queue.ts';
import {
  accountWords,
  minPasswordLength,
  newPassword,
  passwordRules,
  passwordsRefused,
  requireNewPassword,
} from './new-password.ts';

export const acceptedResponse = z.object({
  status: z.literal('accepted').describe('Always `accepted`, whether or not the address is known.'),
});

const registration = (services: AuthServices) =>
  z.object({
    email: email().describe('The e-mail address, which receives the mail.'),
    password: newPassword(services).describe(
      `The password to log in with once the address is confirmed. ${passwordRules}`,
    ),
    firstName: text({ max: lengths.name }).describe('The first name of the person.'),
    lastName: text({ max: lengths.name }).describe('The last name of the person.'),
  });

/**
 * Adds a user, who must confirm the e-mail address. Anyone may call it if the tenant has the
 * feature `selfRegistration`. A caller with a token needs the rights for an invitation of a
 * `Member`, and is the actor in the audit log when the user confirms. Response and response
 * time do not depend on whether the address is known: the request is stored, and a worker looks
 * the address up after the response. So a process that is killed loses no mail.
 */
export function register(services: AuthServices): TenantRoute {
  const { control, passwords, mails } = services;
  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/register',
    access: 'optional',
    rateLimit: 'account',
    problems: ['forbidden', 'wrong_state'],
    tag: 'Authentication',
    summary: 'Add a user, who receives a mail to confirm the address',
    description:
      'Open to anyone if the tenant has the feature `selfRegistration`; otherwise the ' +
      'caller needs the permission `users.manage`, the scope `All`, and all permissions ' +
      'of the role `Member`, which the user gets. The response does not reveal whether the ' +
      'address was known: a known address gets the mail that helps it on.',
    body: registration(services),
    example: {
      email: 'new@example.com',
      password: 'correct horse battery',
      firstName: 'Nora',
      lastName: 'Newman',
    },
    bodyLimit: bodyLimits.auth,
    response: acceptedResponse,
    status: 202,
    handler: async ({ body: { email, password, firstName, lastName } }, context) => {
      const { tenant, origin } = context;
      await requireMayRegister(control, context);
      requireNewPassword('password', password, {
        minLength: minPasswordLength(services.passwordMinLength, false),
        words: accountWords({ email, firstName, lastName }, tenant),
      });
      const passwordHash = await passwords.hash(password, hashRequester(context));

      const request = { tenantId: tenant.id, address: email, traceId: origin.traceId };
      const network = clientNetwork(origin.ipAddress, networkBits);
      const actor = context.optionalCaller ? context.actor : null;
      await requestRegistrationMail(control, request, network, {
        passwordHash,
        firstName,
        lastName,
        actor,
      });
      mails.wake();

      return { status: 'accepted' as const };
    },
  });
}

/** Prefix length of an IPv6 client's network: a subscriber may have a whole /48 (RFC 6177). */
const networkBits = 48;

const memberPermissions = `select permissions from roles where tenant_id = $1 and name = 'Member'`;

/**
 * A caller who registers somebody with a token grants the role `Member`, by the rule of an
 * invitation.
 */
async function requireMayRegister(
  control: ControlDatabase,
  context: RequestContext,
): Promise<void> {
  if (!context.optionalCaller) {
    const { tenant } = context;
    if (hasFeature(tenant, 'selfRegistration') && !tenant.passwordUsers) return;
    throw problem('unauthorized', {
      reason: 'no_token',
      headers: { 'WWW-Authenticate': 'Bearer' },
    });
  }

  const query: QueryControl = (name, text, values) => queryControl(control, name, text, values);
  const held = await requireManager(query, context);
  const [member] = await query<Pick<Role, 'permissions'>>('member_permissions', memberPermissions, [
    context.tenant.id,
  ]);
  requireMayGrant(member?.permissions ?? [], held);
  if (context.tenant.passwordUsers) throw passwordsRefused();
}

/** The same problem for an unknown, used, expired or foreign token. */
export const invalidMailToken = () =>
  fieldProblem('token', 'is invalid, used or expired', 'invalid_token');

/** Confirms an e-mail address by the token that was sent to it. */
export function confirm(services: AuthServices): TenantRoute {
  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/confirm',
    access: 'anonymous',
    rateLimit: 'account',
    tag: 'Authentication',
    summary: 'Confirm an e-mail address',
    problems: ['wrong_state'],
    description: 'Password and names become those of the registration that the token was sent for.',
    body: z.object({ token: z.string().min(1).describe('The token of the mail.') }),
    example: { token: 'the token of the mail' },
    bodyLimit: bodyLimits.auth,
    handler: async ({ body }, { tenant, origin, deadline }) => {
      const network = clientNetwork(origin.ipAddress);

      const isConfirmed = await confirmRegistration(
        services,
        tenant,
        body.token,
        network,
        deadline,
      );
      if (!isConfirmed) throw invalidMailToken();
    },
  });
}
