import { z } from 'zod';
import { type QueryControl, setActor, transactControl } from '../../control/database.ts';
import { bodyLimits } from '../../lib/http/route.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import type { AuthServices } from './auth-services.ts';
import { forgetWrongCodes } from './factors/check-code.ts';
import { lockAccountOf, onlyPeople } from './factors/factor-store.ts';
import { hashRequester } from './hash-queue.ts';
import {
  accountWords,
  isShortPassword,
  minPasswordLength,
  newPassword,
  passwordRules,
  requireNewPassword,
} from './new-password.ts';
import { setPasswordHash } from './sessions.ts';
import { requireVerified } from './verify.ts';

const revokeOthers = `
  update sessions set revoked_at = now(), revoked_reason = 'password_changed'
   where user_id = $1 and id <> $2::uuid and revoked_at is null`;
const keepOwn = 'update sessions set password_is_short = $2 where id = $1::uuid';

/** Changes the password of the caller, who stays logged in. The other sessions end. */
export function changePassword(services: AuthServices): TenantRoute {
  const { control, directory, passwords, passwordMinLength } = services;

  return defineRoute({
    method: 'PUT',
    path: '/api/v1/auth/password',
    access: 'user',
    tag: 'Authentication',
    summary: 'Change your password; your other sessions end',
    description:
      `${passwordRules} Needs a proof of the present password of the last five minutes, and of your ` +
      'second factor if you have one: a login, or `POST /api/v1/auth/verify`.',
    body: z.object({
      newPassword: newPassword(services, true).describe('The password to set.'),
    }),
    example: { newPassword: 'four quiet words of mine' },
    bodyLimit: bodyLimits.auth,
    rateLimit: 'account',
    problems: ['verification_required', 'wrong_state'],
    handler: async ({ body }, context) => {
      const { caller, tenant, actor } = context;
      if (!caller.sessionId) throw onlyPeople();

      const { userId, sessionId } = caller;
      // Hashed before the transaction, to keep the transaction short.
      const hash = await passwords.hash(body.newPassword, hashRequester(context));
      const isShort = isShortPassword(body.newPassword, passwordMinLength);

      await transactControl(control, async (query: QueryControl) => {
        const account = await lockAccountOf(query, { userId, tenantId: tenant.id });
        await requireVerified(query, caller);
        requireNewPassword('newPassword', body.newPassword, {
          minLength: minPasswordLength(passwordMinLength, account.factors > 0),
          words: accountWords(account, tenant),
        });

        await setActor(query, actor);
        await setPasswordHash(query, userId, hash);
        await query('revoke_others', revokeOthers, [userId, sessionId]);
        await query('keep_own', keepOwn, [sessionId, isShort]);
        await forgetWrongCodes(query, userId);
      });
      directory.invalidateSession(sessionId);
    },
  });
}
