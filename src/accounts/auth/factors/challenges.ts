import { createHash, randomBytes } from 'node:crypto';
import {
  type ControlDatabase,
  type QueryControl,
  queryControl,
} from '../../../control/database.ts';
import { digestOfHash } from '../../../control/second-factor.ts';
import type { ProvedIdentity } from '../proved-identity.ts';

/** Seconds for which a login waits for its second factor. */
const challengeSeconds = 300;
/** The codes that one challenge may be sent with. */
const maxTries = 5;
/** Rows removed at a time. A challenge adds only one, so the table does not grow. */
const batch = 100;
const challengePattern = /^sbc_[0-9a-f]{40}$/;

/** `verify`: by a factor that the person has; `setup`: by one that the person sets up. */
type Purpose = 'verify' | 'setup';

/** A login whose password was right, or whose identity at a provider. */
export interface Challenge {
  /** SHA-256 of the challenge. */
  readonly hash: Buffer;
  readonly userId: number;
  /** SHA-256 of the stored hash of the password. */
  readonly password: Buffer;
  /** True if new passwords of an account without a second factor have to be longer. */
  readonly passwordIsShort: boolean;
  /** The identity that was proved in place of a password; null: a password was. */
  readonly identityId: number | null;
  /** As `ProvedIdentity` has it. */
  readonly providerSid: string | null;
}

const insertChallenge = `
  with expired as (
    delete from login_challenges where ctid = any (array(
      select ctid from login_challenges where expires_at < now()
       order by expires_at limit ${batch} for update skip locked)))
  insert into login_challenges (hash, tenant_id, user_id, purpose, password, password_is_short, expires_at,
                                identity_id, provider_sid)
  select $1, tenant_id, id, $3, ${digestOfHash('password_hash')}, $4, now() + interval '${challengeSeconds} seconds', $5, $6
    from users where id = $2`;

/**
 * Makes the challenge of a login whose password or identity was right: 160 random bits, which
 * are no token, and which only `login/verify`, `login/setup` or `verify` takes, in its body. A
 * new password makes it void.
 */
export async function createChallenge(
  query: QueryControl,
  userId: number,
  purpose: Purpose,
  passwordIsShort: boolean,
  identity?: Pick<ProvedIdentity, 'id' | 'providerSid'>,
): Promise<string> {
  const challenge = `sbc_${randomBytes(20).toString('hex')}`;
  const values = [
    hashOf(challenge),
    userId,
    purpose,
    passwordIsShort,
    identity?.id ?? null,
    identity?.providerSid ?? null,
  ];
  await query('insert_challenge', insertChallenge, values);

  return challenge;
}

const open = `
  hash = $1 and tenant_id = $2 and purpose = $3 and expires_at > now()`;
const columns = `
  hash, user_id::float8 as "userId", password, password_is_short as "passwordIsShort",
  identity_id::float8 as "identityId", provider_sid as "providerSid"`;
const find = `select ${columns} from login_challenges where ${open}`;
const spend = `
  update login_challenges set tries = tries + 1 where ${open} and tries < ${maxTries} returning ${columns}`;

/**
 * Returns an open challenge of a tenant.
 * @param isTried true to count a code that it is sent with, before the code is compared
 * @returns undefined for a text of no challenge, and for one that has ended, of another tenant
 *   or purpose, or that had five codes
 */
export async function findChallenge(
  control: ControlDatabase,
  { tenantId, challenge, purpose }: { tenantId: number; challenge: string; purpose: Purpose },
  isTried: boolean,
): Promise<Challenge | undefined> {
  if (!challengePattern.test(challenge)) return undefined;
  const values = [hashOf(challenge), tenantId, purpose];
  const [found] = await (isTried
    ? queryControl<Challenge>(control, 'spend_challenge', spend, values)
    : queryControl<Challenge>(control, 'find_challenge', find, values));

  return found;
}

const remove = 'delete from login_challenges where hash = $1 returning hash';

/** Ends a challenge. Returns false if it has ended already: a challenge is good once. */
export async function takeChallenge(query: QueryControl, { hash }: Challenge): Promise<boolean> {
  return (await query('take_challenge', remove, [hash])).length > 0;
}

/**
 * Returns what a passkey signs for a login or a verification: made of its challenge, so that
 * both end together. It is not the hash that is stored.
 */
export function passkeyChallengeOf(challenge: string): string {
  return createHash('sha256').update(`passkey ${challenge}`).digest('base64url');
}

function hashOf(challenge: string): Buffer {
  return createHash('sha256').update(challenge).digest();
}
