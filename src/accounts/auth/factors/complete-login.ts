import { z } from 'zod';
import { type QueryControl, transactControl } from '../../../control/database.ts';
import { bodyLimits } from '../../../lib/http/route.ts';
import { hasCode, problem } from '../../../lib/problems.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { AuthServices } from '../auth-services.ts';
import { issueTokens, loadTokenHolder, loginResponse } from '../issue-tokens.ts';
import { loginClient } from '../login-client.ts';
import { type ProvedIdentity, takeIdentity } from '../proved-identity.ts';
import type { RefreshToken } from '../refresh-token.ts';
import { insertSessionOf } from '../sessions.ts';
import { type Challenge, findChallenge, takeChallenge } from './challenges.ts';
import type { CodeOwner } from './check-code.ts';
import { confirmedFactor } from './factor-fields.ts';
import { type LockedAccount, lockAccountOf } from './factor-store.ts';
import { setPerson } from './login-actor.ts';

/** The properties that the routes of logins share. */
export const loginRoute = {
  method: 'POST',
  access: 'anonymous',
  tag: 'Authentication',
  bodyLimit: bodyLimits.auth,
  rateLimit: 'login',
} as const;

export const setupToken = z.string().max(100).describe('The `setupToken` of the refused login.');

/** The response to a login that has set up the second factor that a role requires. */
export const setUpLogin = loginResponse.extend(confirmedFactor.shape).meta({ title: 'SetUpLogin' });

interface SentChallenge {
  readonly challenge: string;
  readonly purpose: 'verify' | 'setup';
  /** True to count a code that it is sent with. */
  readonly isTried: boolean;
}

/**
 * Requires an open challenge of the tenant.
 * @throws {Problem} `invalid_challenge`
 */
export async function requireChallenge(
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
 * Locks the account of a challenge. One without an identity is of a login with a password, which
 * the account must have: `POST /api/v1/auth/verify` makes one, too, for who has proved an
 * identity, and would open a session that no provider ends.
 * @throws {Problem} `invalid_challenge` when the person has a new password, is disabled, or has
 *   none that may be used
 */
export async function requireOpenAccount(
  query: QueryControl,
  owner: CodeOwner,
  { password, identityId }: Challenge,
): Promise<LockedAccount> {
  const account = await lockAccountOf(query, owner);
  const isPasswordGood = account.hasPassword && account.mayUsePassword;
  const isAllowed = account.mayLogIn && (identityId !== null || isPasswordGood);
  if (!isAllowed || !account.password.equals(password)) throw problem('invalid_challenge');

  return account;
}

export interface Completion {
  /** The proof of the factor, by RFC 8176. */
  readonly method: 'otp' | 'pop';
  /** Takes the proof of the factor. */
  readonly prove: (query: QueryControl, account: LockedAccount) => Promise<void>;
}

/**
 * Ends a challenge and opens the session of its login, in one transaction.
 * @throws {Problem} `invalid_challenge`, and those of `prove`: nothing has changed then
 */
export async function completeLogin(
  services: AuthServices,
  context: RequestContext,
  challenge: Challenge,
  owner: CodeOwner,
  { method, prove }: Completion,
): Promise<z.input<typeof loginResponse>> {
  const { tenant, origin } = context;
  const methods = [firstProof(challenge), method];
  const holder = await loadTokenHolder(services, context, owner.userId);
  if (!holder) throw problem('invalid_challenge');

  const client = loginClient(origin);
  const token = await transactControl(services.control, async (query): Promise<RefreshToken> => {
    const account = await requireOpenAccount(query, owner, challenge);
    await setPerson(query, owner, context, account);
    await prove(query, account);
    if (!(await takeChallenge(query, challenge))) throw problem('invalid_challenge');

    const { passwordIsShort } = challenge;
    const identity = await takeIdentityOf(query, challenge, owner);

    return insertSessionOf(query, holder.user, client, { methods, passwordIsShort, identity });
  });

  return issueTokens(services, tenant, holder, token, { methods, idpIsFactor: false });
}

/**
 * Uses the identity of a login by a provider; undefined for a login with a password.
 * @throws {Problem} `invalid_challenge` when it is gone or held meanwhile, or its provider
 *   disabled
 */
async function takeIdentityOf(
  query: QueryControl,
  { identityId, providerSid }: Challenge,
  owner: CodeOwner,
): Promise<ProvedIdentity | undefined> {
  if (identityId === null) return undefined;
  if (!(await takeIdentity(query, identityId, owner))) throw problem('invalid_challenge');

  return { id: identityId, providerSid, isFactor: false };
}

/** Returns the login of a person whose password, or identity, was right. */
export function afterFirstProof(challenge: Challenge): TriedLogin {
  return { userId: challenge.userId, proved: [firstProof(challenge)] };
}

/** The first proof of a login, by RFC 8176; `idp` for one by a provider. */
function firstProof({ identityId }: Challenge): 'pwd' | 'idp' {
  return identityId === null ? 'pwd' : 'idp';
}

interface TriedLogin {
  /** Undefined for a passkey that nobody of the tenant has. */
  readonly userId: number | undefined;
  /** The proofs of before, by RFC 8176. */
  readonly proved: readonly string[];
}

/**
 * Completes a login, and notes one whose proof is wrong as a failed login.
 * @param complete throws `invalid_code` or `invalid_passkey` for a wrong proof
 */
export async function notingWrongProof<Result>(
  { failedLogins }: Pick<AuthServices, 'failedLogins'>,
  { tenant, origin }: RequestContext,
  { userId, proved }: TriedLogin,
  complete: () => Promise<Result>,
): Promise<Result> {
  try {
    return await complete();
  } catch (error) {
    const isPasskey = hasCode(error, 'invalid_passkey');
    if (isPasskey || hasCode(error, 'invalid_code')) {
      failedLogins.note({
        tenantId: tenant.id,
        userId,
        methods: [...proved, isPasskey ? 'pop' : 'otp'],
        reason: isPasskey ? 'invalid_passkey' : 'invalid_code',
        client: loginClient(origin),
      });
    }
    throw error;
  }
}
