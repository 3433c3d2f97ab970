import { z } from 'zod';
import { type QueryControl, queryControl, transactControl } from '../../control/database.ts';
import { invalidToken } from '../../lib/http/request/bearer-token.ts';
import { timestamp } from '../../lib/http/request/fields.ts';
import { bodyLimits } from '../../lib/http/route.ts';
import { problem } from '../../lib/problems.ts';
import type { Caller } from '../../tenancy/caller.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import type { AuthServices } from './auth-services.ts';
import { hashRequester } from './hash-queue.ts';
import { passwordLength } from './passwords.ts';

/** The time after a login or a verification in which a person may do what needs one. */
const proofLifetime = '5 minutes';

const isVerified = `
  select from sessions
   where id = $1::uuid and revoked_at is null
     and coalesce(verified_at, created_at) > now() - interval '${proofLifetime}'`;

/**
 * Requires that the person has proved the password within the last five minutes, by the login
 * of the session or by `POST /api/v1/auth/verify`. So a token that somebody has left behind
 * does not suffice, nor does a session that was revoked a moment ago, which a cache may still
 * have as valid. A program, and a legacy client, can prove nothing.
 * @throws {Problem} `verification_required`
 */
export async function requireVerified(query: QueryControl, { sessionId }: Caller): Promise<void> {
  const proofs = sessionId ? await query('verified_session', isVerified, [sessionId]) : [];
  if (proofs.length > 0) return;

  throw problem('verification_required', {
    detail: sessionId
      ? 'Send your password to /api/v1/auth/verify, and then this request again.'
      : 'Only a person who has logged in can do this.',
  });
}

const ownHash = 'select password_hash as hash from users where id = $1 and tenant_id = $2';
const verifySession = `
  update sessions set verified_at = now()
   where id = $1::uuid and revoked_at is null
     and exists (select from users u where u.id = user_id and u.id = $2 and password_hash = $3)
  returning to_json(now() + interval '${proofLifetime}') #>> '{}' as until`;

/** Proves the password of the caller again, for what needs a proof of the last five minutes. */
export function verify({ control, passwords }: AuthServices): TenantRoute {
  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/verify',
    access: 'user',
    tag: 'Authentication',
    summary: 'Prove your password again, for what needs a proof of the last five minutes',
    description:
      'To make a key of a program needs one: a login, or this. A wrong password counts as a ' +
      'failed login, and ends no session.',
    body: z.object({
      password: z
        .string()
        .min(1)
        .max(passwordLength.max * 8)
        .describe('The password of the user.'),
    }),
    example: { password: 'the password that npm start printed' },
    bodyLimit: bodyLimits.auth,
    rateLimit: 'login',
    problems: ['invalid_credentials', 'wrong_state'],
    response: z
      .object({ verifiedUntil: timestamp().describe('When the proof ends.') })
      .meta({ title: 'Verification' }),
    handler: async ({ body: { password } }, context) => {
      const { caller, tenant } = context;
      if (!caller.sessionId) {
        throw problem('wrong_state', { detail: 'Only a person who has logged in can do this.' });
      }

      const [user] = await queryControl<{ hash: string }>(control, 'own_hash', ownHash, [
        caller.userId,
        tenant.id,
      ]);
      const matches = await passwords.verify(user?.hash, password, hashRequester(context));
      if (!matches) throw problem('invalid_credentials');

      const [verified] = await transactControl(control, query =>
        query<{ until: string }>('verify_session', verifySession, [
          caller.sessionId,
          caller.userId,
          user?.hash,
        ]),
      );
      if (!verified) throw invalidToken('session');

      return { verifiedUntil: new Date(verified.until).toISOString() };
    },
  });
}
