import { z } from 'zod';
import {
  type QueryControl,
  queryControl,
  setActor,
  transactControl,
} from '../../control/database.ts';
import { mayUsePasswordOf } from '../../control/password-logins.ts';
import { hasFactor, hasProvedFactor } from '../../control/second-factor.ts';
import { invalidToken } from '../../lib/http/request/bearer-token.ts';
import { timestamp } from '../../lib/http/request/fields.ts';
import { bodyLimits } from '../../lib/http/route.ts';
import { fieldProblem, problem } from '../../lib/problems.ts';
import type { Caller } from '../../tenancy/caller.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import type { AuthServices } from './auth-services.ts';
import { createChallenge, findChallenge, takeChallenge } from './factors/challenges.ts';
import {
  checkProof,
  errorsOfProof,
  type FactorProof,
  proofFields,
  type SentProof,
  wantedProof,
} from './factors/factor-proof.ts';
import { lockAccountOf } from './factors/factor-store.ts';
import { hashRequester } from './hash-queue.ts';
import {
  checkIdToken,
  provesFactor,
  refuseIdToken,
  stillProvesFactor,
} from './identities/check-id-token.ts';
import { idTokenField } from './identities/id-token-field.ts';
import { findIdentity, takeIdToken } from './identities/identity-store.ts';
import { isShortPassword } from './new-password.ts';
import { noPassword, passwordLength } from './passwords.ts';
import { takeIdentity } from './proved-identity.ts';
import { addMethod } from './sessions.ts';

/** The time after a login or a verification in which a person may do what needs one. */
const proofLifetime = '5 minutes';

/** SQL: true if the user `u` has a password, and may use it. */
const hasPassword = `(u.password_hash <> '${noPassword}' and ${mayUsePasswordOf('u')})`;

const isVerified = `
  select from sessions s join users u on u.tenant_id = s.tenant_id and u.id = s.user_id
   where s.id = $1::uuid and revoked_at is null
     and (verified_at > now() - interval '${proofLifetime}'
       or s.created_at > now() - interval '${proofLifetime}'
          and (identity_id is null or not ${hasPassword}))
     and (${hasProvedFactor('s')} or not ${hasFactor('u')})`;

/**
 * Requires that the person has proved the password, and the second factor if there is one,
 * within the last five minutes, by the login of the session or by `POST /api/v1/auth/verify`. Of
 * a person who has no password, or may not use it, a sign-in at the provider is the proof. So
 * a token that somebody has left behind does not suffice, nor does a session that was revoked a
 * moment ago, which a cache may still have as valid. A program, and a legacy client, can prove
 * nothing.
 * @throws {Problem} `verification_required`
 */
export async function requireVerified(query: QueryControl, { sessionId }: Caller): Promise<void> {
  const proofs = sessionId ? await query('verified_session', isVerified, [sessionId]) : [];
  if (proofs.length > 0) return;

  throw problem('verification_required', {
    detail: sessionId
      ? 'Send your password, or an ID token if you may not use one, and a code of your second factor if you have one, to ' +
        '/api/v1/auth/verify, and then this request again.'
      : 'Only a person who has logged in can do this.',
  });
}

const ownAccount = `
  select password_hash as hash, ${hasPassword} as "hasPassword",
         ${hasFactor('u')} as "hasFactor",
         (select identity_id::float8 from sessions where id = $3::uuid) as "identityId"
    from users u where id = $1 and tenant_id = $2`;
const markFactor =
  'update sessions set idp_is_factor = true where id = $1::uuid and not idp_is_factor';
const verifySession = `
  update sessions set verified_at = now(), password_is_short = $4
   where id = $1::uuid and revoked_at is null
     and exists (select from users u where u.id = user_id and u.id = $2 and password_hash = $3)
  returning to_json(now() + interval '${proofLifetime}') #>> '{}' as until`;

/** Proves the password of the caller again, for what needs a proof of the last five minutes. */
export function verify(services: AuthServices): TenantRoute {
  const { control, directory, passwords } = services;

  return defineRoute({
    method: 'POST',
    path: '/api/v1/auth/verify',
    access: 'user',
    tag: 'Authentication',
    summary: 'Prove your password again, for what needs a proof of the last five minutes',
    description:
      'To make a key of a program, or to change your second factors, needs one: a login, or this. A ' +
      'person with a second factor sends a code or a passkey, too. Without one, 401 ' +
      '`second_factor_required` has the options for passkeys. A wrong password counts as a failed login, ' +
      'and ends no session. A person who has no password, or may not use it, sends an ID token of a sign-in ' +
      'at the provider in its place.',
    body: z.object({
      password: z
        .string()
        .min(1)
        .max(passwordLength.max * 8)
        .optional()
        .describe('The password of the user.'),
      idToken: idTokenField
        .optional()
        .describe(
          'In place of `password`, of a person who may not use one: a new ID token, which is good once.',
        ),
      ...proofFields,
      challenge: z
        .string()
        .max(100)
        .optional()
        .describe('With `passkey`: the `challenge` of the refused request.'),
    }),
    example: { password: 'the password that npm start printed' },
    bodyLimit: bodyLimits.auth,
    rateLimit: 'login',
    problems: [
      'invalid_credentials',
      'invalid_id_token',
      'invalid_challenge',
      'invalid_code',
      'invalid_passkey',
      'second_factor_required',
      'wrong_state',
    ],
    response: z
      .object({ verifiedUntil: timestamp().describe('When the proof ends.') })
      .meta({ title: 'Verification' }),
    handler: async ({ body: { password, idToken, ...sent } }, context) => {
      const { caller, tenant } = context;
      if (!caller.sessionId) {
        throw problem('wrong_state', { detail: 'Only a person who has logged in can do this.' });
      }

      if ((password === undefined) === (idToken === undefined)) throw onePasswordOrToken();

      const [user] = await queryControl<OwnAccount>(control, 'own_account', ownAccount, [
        caller.userId,
        tenant.id,
        caller.sessionId,
      ]);
      const signIn =
        idToken === undefined ? undefined : await requireOwnToken(services, context, user, idToken);
      const matches =
        password === undefined ||
        (await passwords.verify(user?.hash, password, hashRequester(context)));
      const isRefused = password !== undefined && !user?.hasPassword;
      if (!matches || isRefused) throw problem('invalid_credentials');

      const isShort =
        password !== undefined && isShortPassword(password, services.passwordMinLength);
      const proof =
        user?.hasFactor && !signIn?.isFactor
          ? await requireProof(services, context, sent, isShort)
          : undefined;

      const [verified] = await transactControl(control, async query => {
        if (proof || signIn) {
          await lockAccountOf(query, { tenantId: tenant.id, userId: caller.userId });
          await setActor(query, context.actor);
        }
        if (signIn) await signIn.take(query);
        if (signIn?.isFactor) {
          await query('mark_factor_of_provider', markFactor, [caller.sessionId]);
        }
        if (proof) {
          await proof.take(query);
          await addMethod(query, caller.sessionId, proof.method);
        }
        return query<{ until: string }>('verify_session', verifySession, [
          caller.sessionId,
          caller.userId,
          user?.hash,
          isShort,
        ]);
      });
      if (!verified) throw invalidToken('session');
      if (proof || signIn?.isFactor) directory.invalidateSession(caller.sessionId);

      return { verifiedUntil: new Date(verified.until).toISOString() };
    },
  });
}

/** The facts of the caller's account that decide about a proof. */
interface OwnAccount {
  readonly hash: string;
  /** True if there is a password, and the rules of sign-in let the person use it. */
  readonly hasPassword: boolean;
  readonly hasFactor: boolean;
  /** The identity that has opened the session; null: none has. */
  readonly identityId: number | null;
}

/** The problem of a body that has not exactly one of the two proofs. */
function onePasswordOrToken() {
  return fieldProblem('password', 'is required, or idToken instead without a password', 'required');
}

/** A sign-in at a provider that proves who the caller is, and was not used yet. */
interface ProvedSignIn {
  /** True if it counts as a second factor in this session. */
  readonly isFactor: boolean;
  /**
   * Uses its token in the transaction of the proof.
   * @throws {Problem} `invalid_id_token` if it was used meanwhile, or does not count as a second
   *   factor any more
   */
  readonly take: (query: QueryControl) => Promise<void>;
}

/**
 * Checks that an ID token is of an identity of the caller, who has no password.
 * @throws {Problem} `invalid_id_token`, `unavailable`; `wrong_state` for who has a password
 */
async function requireOwnToken(
  services: AuthServices,
  context: RequestContext,
  user: OwnAccount | undefined,
  idToken: string,
): Promise<ProvedSignIn> {
  const { tenant, caller } = context;
  if (user?.hasPassword) {
    throw problem('wrong_state', { detail: 'You have a password: send it in place of idToken.' });
  }

  const checked = await checkIdToken(services, context, idToken);
  const { provider, claims } = checked;
  const identity = await findIdentity(services.control, tenant.id, provider.id, claims.sub);
  if (identity?.userId !== caller.userId) {
    throw refuseIdToken(services, context, 'unknown_person', provider);
  }

  const owner = { tenantId: tenant.id, userId: caller.userId };
  const isFactor = user?.identityId === identity.id && provesFactor(checked);
  return {
    isFactor,
    take: async query => {
      if (!(await takeIdentity(query, identity.id, owner, claims.issuedAt))) {
        throw refuseIdToken(services, context, 'held', provider);
      }
      if (!(await takeIdToken(query, claims))) {
        throw refuseIdToken(services, context, 'used', provider);
      }
      if (isFactor && !(await stillProvesFactor(query, checked))) {
        throw refuseIdToken(services, context, 'no_rule', provider);
      }
    },
  };
}

/**
 * Checks the second factor of the caller.
 * @throws {Problem} `second_factor_required` without a proof, with the options for passkeys;
 *   `invalid_code`, `invalid_passkey` or `invalid_challenge` with a wrong one
 */
async function requireProof(
  services: AuthServices,
  context: RequestContext,
  { challenge, ...sent }: SentProof & { readonly challenge?: string | undefined },
  passwordIsShort: boolean,
): Promise<FactorProof> {
  const { control } = services;
  const { tenant, caller } = context;
  const owner = { tenantId: tenant.id, tenantGuid: tenant.guid, userId: caller.userId };

  if (Object.values(sent).every(each => each === undefined)) {
    const created = await transactControl(control, query =>
      createChallenge(query, caller.userId, 'verify', passwordIsShort),
    );
    const members = await wantedProof(services, context, owner, created);
    throw problem('second_factor_required', { members });
  }

  const errors = errorsOfProof(sent);
  if (Object.keys(errors).length > 0) throw problem('validation_failed', { errors });
  if (!sent.passkey) return checkProof(services, context, owner, sent, '');

  const found = await findChallenge(
    control,
    { tenantId: tenant.id, challenge: challenge ?? '', purpose: 'verify' },
    true,
  );
  if (found?.userId !== caller.userId) throw problem('invalid_challenge');
  const proof = await checkProof(services, context, owner, sent, challenge ?? '');

  return {
    ...proof,
    take: async query => {
      if (!(await takeChallenge(query, found))) throw problem('invalid_challenge');
      await proof.take(query);
    },
  };
}
