import { z } from 'zod';
import { User } from '../control/entities.ts';
import { problem } from '../errors.ts';
import { lengths, text } from '../http/fields.ts';
import { bodyLimits } from '../http/route.ts';
import { defineRoute, type TenantRoute } from '../tenancy/define-route.ts';
import { issueTokens, loginResponse } from './issue-tokens.ts';
import { normaliseEmail, passwordLength } from './passwords.ts';
import type { AuthParts } from './routes.ts';
import { openSession } from './sessions.ts';

const credentials = z.object({
  email: text({ max: lengths.email }),
  // Taken as it was typed: white space counts. Longer than any that could be set is simply wrong.
  password: z
    .string()
    .min(1)
    .max(passwordLength.max * 8),
});

/** The address that a login body names, as it would be looked up; '' when it names none. */
export function loginAccount(body: object): string {
  const email = credentials.shape.email.safeParse((body as { email?: unknown }).email);
  return email.success ? normaliseEmail(email.data) : '';
}

/** Every failure is the same answer after the same work: unknown, wrong, unconfirmed, disabled. */
export function login(parts: AuthParts): TenantRoute {
  const { control, passwords } = parts;
  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/login',
    access: 'anonymous',
    tag: 'Authentication',
    summary: 'Log in with e-mail address and password',
    body: credentials,
    example: { email: 'admin@demo.test', password: 'the password that npm start printed' },
    bodyLimit: bodyLimits.auth,
    rateLimit: 'login',
    response: loginResponse,
    handler: async ({ body: { email, password } }, context) => {
      const em = control.em.fork();
      const user = await em.findOne(User, { tenant: context.tenant.id, email: normaliseEmail(email) });
      const matches = await passwords.verify(user?.passwordHash, password);
      if (!user || !matches || !user.confirmedAt || user.disabledAt) throw problem('invalid_credentials');
      if (passwords.isOutdated(user.passwordHash)) {
        user.passwordHash = await passwords.hash(password);
        await em.flush();
      }
      const session = await openSession(control, { id: user.id, tenantId: context.tenant.id });
      return issueTokens(parts, context, user.id, session);
    },
  });
}
