import { randomUUID } from 'node:crypto';
import { type QueryControl, queryControl } from '../../../control/database.ts';
import { addedBy, requireNoFormerBuild } from '../../../control/former-builds.ts';
import { mayUsePasswordOf } from '../../../control/password-logins.ts';
import { digestOfHash } from '../../../control/second-factor.ts';
import { owners } from '../../../control/secret-box.ts';
import { problem } from '../../../lib/problems.ts';
import type { AuthServices } from '../auth-services.ts';
import { noPassword } from '../passwords.ts';
import { type CodeOwner, forgetWrongCodes } from './check-code.ts';
import { makeRecoveryCodes } from './recovery-codes.ts';
import { createTotpKey, stepOfCode, type TotpKey } from './totp.ts';

/** Maximum factors of a person. */
const maxFactors = 10;
/** The time in which a new factor has to be confirmed. */
const confirmTime = `interval '15 minutes'`;

/** The name of an authenticator app that its person has not named. */
export const defaultName = 'Authenticator app';

/** A factor as its person sees it. */
export interface FactorRow {
  readonly id: string;
  readonly kind: 'totp' | 'passkey';
  readonly name: string;
  /** In ISO 8601. */
  readonly confirmedAt: string;
  /** In ISO 8601; null if never. */
  readonly lastUsedAt: string | null;
  /** Since when a new password holds it, in ISO 8601; null: it is not held. */
  readonly heldAt: string | null;
}

const listed = `
  select id, kind, name, to_json(confirmed_at) #>> '{}' as "confirmedAt",
         to_json(last_used_at) #>> '{}' as "lastUsedAt", to_json(held_at) #>> '{}' as "heldAt"
    from factors where tenant_id = $1 and user_id = $2 and confirmed_at is not null
   order by created_at, id`;

/** Lists the factors of a person, the oldest first. */
export function listFactors(
  { control }: Pick<AuthServices, 'control'>,
  { tenantId, userId }: Pick<CodeOwner, 'tenantId' | 'userId'>,
): Promise<FactorRow[]> {
  return queryControl<FactorRow>(control, 'list_factors', listed, [tenantId, userId]);
}

/** The facts of an account that decide about its factors. */
export interface LockedAccount {
  readonly guid: string;
  readonly email: string;
  readonly firstName: string;
  readonly lastName: string;
  /** SHA-256 of the stored hash of the password. */
  readonly password: Buffer;
  /** False for a person who has never set a password. */
  readonly hasPassword: boolean;
  readonly mayLogIn: boolean;
  /** True if the person may log in by a password or a passkey. */
  readonly mayUsePassword: boolean;
  readonly factors: number;
  readonly mustHaveFactor: boolean;
}

const lockAccount = `
  select guid, email, first_name as "firstName", last_name as "lastName",
         ${digestOfHash('password_hash')} as password, password_hash <> '${noPassword}' as "hasPassword",
         confirmed_at is not null and disabled_at is null as "mayLogIn",
         ${mayUsePasswordOf('u')} as "mayUsePassword",
         (select count(*)::int from factors f where f.tenant_id = u.tenant_id and f.user_id = u.id
             and f.confirmed_at is not null) as factors,
         must_set_up_factor or (select requires_second_factor from roles r where r.id = u.role_id) as "mustHaveFactor"
    from users u where id = $1 and tenant_id = $2 and kind = 'person' for no key update`;

/**
 * Locks the account of a person. Each change of its factors or its password does, and so does
 * each login: a login either finds the factor or was completed before.
 * @throws {Problem} `wrong_state` for a program
 */
export async function lockAccountOf(
  query: QueryControl,
  { userId, tenantId }: Pick<CodeOwner, 'tenantId' | 'userId'>,
): Promise<LockedAccount> {
  const [account] = await query<LockedAccount>('lock_account', lockAccount, [userId, tenantId]);
  if (!account) throw onlyPeople();
  return account;
}

/** The problem of a program, which has no second factor. */
export function onlyPeople() {
  return problem('wrong_state', { detail: 'Only a person who has logged in can do this.' });
}

const removeUnconfirmed = `
  delete from factors where tenant_id = $1 and user_id = $2 and confirmed_at is null`;
const insertTotp = `
  insert into factors (id, tenant_id, user_id, kind, name, secret) values ($1, $2, $3, 'totp', $4, $5)`;

/** A factor that its person has not confirmed yet. */
export interface NewFactor {
  readonly id: string;
  readonly key: TotpKey;
}

/**
 * Adds an authenticator app, which counts for nothing before it is confirmed. It takes the
 * place of one that was never confirmed.
 * @param query of a transaction that has locked the account
 * @param issuer the name of the tenant
 * @throws {Problem} `limit_reached`; `migration_pending` while a build runs that knows no
 *   factors
 */
export async function addTotp(
  query: QueryControl,
  { secrets }: Pick<AuthServices, 'secrets'>,
  owner: CodeOwner,
  { email, factors }: LockedAccount,
  { name, issuer }: { name: string; issuer: string },
): Promise<NewFactor> {
  const { tenantId, tenantGuid, userId } = owner;
  await requireRoom(query, factors, addedBy.secondFactors);

  await query('remove_unconfirmed', removeUnconfirmed, [tenantId, userId]);
  const id = randomUUID();
  const key = createTotpKey(issuer, email);
  const sealed = secrets.seal(key.key, owners.factor(tenantGuid, id));
  await query('insert_totp', insertTotp, [id, tenantId, userId, name, sealed]);

  return { id, key };
}

/**
 * Requires that an account may have one more factor.
 * @param migration the one that adds its kind
 * @throws {Problem} `limit_reached`; `migration_pending` while a build runs that does not know
 *   the kind
 */
export async function requireRoom(
  query: QueryControl,
  factors: number,
  migration: string,
): Promise<void> {
  await requireNoFormerBuild(query, migration);
  if (factors < maxFactors) return;

  throw problem('limit_reached', { detail: `An account has at most ${maxFactors} factors.` });
}

const unconfirmed = `
  select id, secret from factors
   where tenant_id = $1 and user_id = $2 and ($3::uuid is null or id = $3) and kind = 'totp'
     and confirmed_at is null and created_at > now() - ${confirmTime}`;
const confirmOne = `
  update factors set confirmed_at = now(), last_used_at = now(), last_step = $2
   where id = $1::uuid and confirmed_at is null returning id`;

/**
 * Confirms an authenticator app by its first code.
 * @param query of a transaction that has locked the account
 * @param id of the factor; null for the one that is not confirmed
 * @returns new recovery codes with the first factor of an account, none with a further one
 * @throws {Problem} `invalid_code`, also when there is no such factor any more
 */
export async function confirmTotp(
  query: QueryControl,
  { secrets, tokens }: Pick<AuthServices, 'secrets' | 'tokens'>,
  owner: CodeOwner,
  { factors }: LockedAccount,
  { id, code }: { id: string | null; code: string },
): Promise<string[]> {
  const { tenantId, tenantGuid, userId } = owner;
  const values = [tenantId, userId, id];
  const [found] = await query<{ id: string; secret: Buffer }>('unconfirmed', unconfirmed, values);
  const key = found && secrets.open(found.secret, owners.factor(tenantGuid, found.id));
  const step = key && stepOfCode(key, code, tokens.now());
  if (!found || step === undefined) throw problem('invalid_code');

  await query('confirm_factor', confirmOne, [found.id, step]);
  return firstRecoveryCodes(query, owner, factors);
}

/**
 * Makes the recovery codes of an account that has its first factor.
 * @param factors the number of those that it had before
 * @returns none with a further factor
 */
export async function firstRecoveryCodes(
  query: QueryControl,
  { tenantId, userId }: Pick<CodeOwner, 'tenantId' | 'userId'>,
  factors: number,
): Promise<string[]> {
  if (factors > 0) return [];

  await forgetWrongCodes(query, userId);
  return makeRecoveryCodes(query, tenantId, userId);
}

const removeOne = `
  delete from factors where id = $1::uuid and tenant_id = $2 and user_id = $3
  returning confirmed_at is not null as "isConfirmed"`;

/**
 * Removes a factor of a person, and with the last one the recovery codes.
 * @param query of a transaction that has locked the account
 * @param sessionId of the person
 * @throws {Problem} `not_found`; `wrong_state` for the last factor of a person whose role
 *   requires one, or whose password is too short without one
 */
export async function removeFactor(
  query: QueryControl,
  { tenantId, userId }: Pick<CodeOwner, 'tenantId' | 'userId'>,
  { factors, mustHaveFactor }: LockedAccount,
  id: string,
  sessionId: string,
): Promise<void> {
  const [removed] = await query<{ isConfirmed: boolean }>('remove_factor', removeOne, [
    id,
    tenantId,
    userId,
  ]);
  if (!removed) throw problem('not_found');
  if (!removed.isConfirmed || factors > 1) return;

  if (mustHaveFactor) {
    throw problem('wrong_state', {
      detail: 'Your role requires a second factor: add another one before you remove this one.',
    });
  }
  if ((await query('short_password', isShort, [sessionId])).length > 0) {
    throw problem('wrong_state', {
      detail:
        'Your password is too short without a second factor: set a longer one first. After a login ' +
        'by a passkey alone, send it to /api/v1/auth/verify first.',
    });
  }
  await query('remove_recovery_codes', removeCodes, [tenantId, userId]);
}

const isShort = 'select from sessions where id = $1::uuid and password_is_short';
const removeAll = 'delete from factors where tenant_id = $1 and user_id = $2 returning id';
const removeCodes = 'delete from recovery_codes where tenant_id = $1 and user_id = $2';
const endLostFactor =
  'update users set must_set_up_factor = false where id = $2 and tenant_id = $1 and must_set_up_factor';
const removeChallenges = 'delete from login_challenges where tenant_id = $1 and user_id = $2';

/**
 * Removes all factors and recovery codes of a person who has lost them, and the logins that
 * wait for one. The sessions of the person go on. A factor that a restore has lost is not waited
 * for any more.
 * @returns the number of factors
 */
export async function resetFactors(
  query: QueryControl,
  tenantId: number,
  userId: number,
): Promise<number> {
  const values = [tenantId, userId];
  const removed = await query('remove_factors', removeAll, values);
  await query('remove_recovery_codes', removeCodes, values);
  await query('remove_challenges', removeChallenges, values);
  await query('end_lost_factor', endLostFactor, values);
  await forgetWrongCodes(query, userId);

  return removed.length;
}
