import { z } from 'zod';
import { User } from '../control/control-entities.ts';
import { transactControl } from '../control/database.ts';
import { fieldProblem } from '../errors.ts';
import { clientNetwork } from '../http/client-address.ts';
import { bodyLimits } from '../http/route.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import type { RequestContext } from '../tenancy/request-context.ts';
import { accountMail } from './account-mail.ts';
import type { AuthServices } from './auth-services.ts';
import { email } from './email.ts';
import { hashRequester } from './hash-queue.ts';
import { rememberNetwork } from './login-networks.ts';
import { createResetToken, usePasswordToken } from './mail-token.ts';
import { newPassword } from './new-password.ts';
import { acceptedResponse, invalidMailToken } from './register.ts';

const request = z.object({
  email: email().optional().describe('The address of the user who receives a mail. Send it alone, for step 1.'),
  token: z.string().min(1).optional().describe('The token of the mail. Send it with `newPassword`, for step 2.'),
  newPassword: newPassword().optional().describe('The password to set.'),
});

/**
 * Resets a password in two steps at one path. Step 1: an e-mail address requests a mail; the response is the same for
 * an unknown address. Step 2: the token of the mail sets the new password. The token of an invitation sets the first
 * one.
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
      'With `email`: 202, and a mail if the user exists. With `newPassword` and `token` (from that mail, valid once, ' +
      'for an hour): 204, and all sessions of the user end. The token of an invitation (valid once, for 7 days) sets the ' +
      'first password in the same way.',
    body: request,
    example: { email: 'you@example.com' },
    bodyLimit: bodyLimits.auth,
    response: acceptedResponse,
    status: 202,
    mayBeEmpty: true,
    handler: async ({ body }, context) => {
      const { tenant } = context;
      const { email, token, newPassword } = body;
      if (email !== undefined && token === undefined && newPassword === undefined) {
        requestReset(services, tenant, email);
        return { status: 'accepted' as const };
      }
      if (email !== undefined || (token === undefined && newPassword === undefined))
        throw fieldProblem('email', 'is required, or token and newPassword instead', 'required');
      if (token === undefined) throw fieldProblem('token', 'is required', 'required');
      if (newPassword === undefined) throw fieldProblem('newPassword', 'is required', 'required');
      return setPassword(services, context, token, newPassword);
    },
  });
}

/** Sends a mail for a new password in the background, if the tenant has a user with this address. */
export function requestReset(services: AuthServices, tenant: RequestContext['tenant'], address: string): void {
  services.background.run('reset-password', () => sendToken(services, tenant, address));
}

async function sendToken(
  { control, mailLimits, sendMail, accountLink }: AuthServices,
  tenant: RequestContext['tenant'],
  address: string,
): Promise<void> {
  const em = control.em.fork();
  const user = await em.findOne(User, { tenant: tenant.id, email: address, disabledAt: null });
  if (!user?.confirmedAt) return;
  if (!(await mailLimits.allowReset({ tenantGuid: tenant.guid, email: user.email }))) return;
  const token = await createResetToken(em, user.id);
  if (token === undefined) return;
  const mail = accountMail({
    to: user.email, // the stored address, never the one in the request
    subject: `A new password for ${tenant.name}`,
    paragraphs: [`Somebody, probably you, asked for a new password for ${tenant.name}.`],
    link: { text: 'Set a new password', address: accountLink('reset', tenant, token) },
    notes: ['The link works once, within an hour.', 'If it was not you, do nothing: your password stays as it is.'],
  });
  await sendMail(tenant, mail);
}

/**
 * Sets the password that the token of a reset or of an invitation permits to set.
 * @throws {Problem} `validation_failed` when the token is not valid
 */
export async function setPassword(
  { control, passwords }: AuthServices,
  context: RequestContext,
  token: string,
  password: string,
): Promise<undefined> {
  // Hashed before the transaction, to keep the transaction short.
  const passwordHash = await passwords.hash(password, hashRequester(context));
  await transactControl(
    control,
    async query => {
      const userId = await usePasswordToken(query, context.tenant.id, context.origin, token, passwordHash);
      if (userId === undefined) throw invalidMailToken();
      // The token proves that the client reads the mails of the user.
      await rememberNetwork(query, userId, clientNetwork(context.origin.ipAddress));
    },
    { deadline: context.deadline, isRepeatable: false },
  );
}
