import { z } from 'zod';
import { type QueryControl, queryControl } from '../../../control/database.ts';
import { owners } from '../../../control/secret-box.ts';
import { addWrongCodesNotice, type CodeOrigin } from '../../mails/notice-requests.ts';
import type { AuthServices } from '../auth-services.ts';
import { takeRecoveryCode } from './recovery-codes.ts';
import { stepOfCode } from './totp.ts';

/** The wrong codes of a person in 24 hours after which codes of an app are refused. */
const maxWrongCodes = 10;
const countingTime = `interval '24 hours'`;

/** The code of an app in a body. People type it in groups. */
export const codeField = () =>
  z
    .string()
    .max(20)
    .transform(text => text.replace(/\s/g, ''))
    .describe('The present code of an authenticator app.');

/** A code that somebody has sent. */
interface SentCode {
  readonly code?: string | undefined;
  readonly recoveryCode?: string | undefined;
}

/** The person whose factor a code shall be of. */
export interface CodeOwner {
  readonly tenantId: number;
  readonly tenantGuid: string;
  readonly userId: number;
}

/**
 * Takes a code in the transaction of what it permits, which has locked the user: each code once,
 * at two processes too.
 * @returns false if it was taken meanwhile, or its factor removed
 */
type TakeCode = (query: QueryControl) => Promise<boolean>;

const totpOf = `
  select id, secret from factors
   where tenant_id = $1 and user_id = $2 and kind = 'totp' and confirmed_at is not null`;
const takeStep = `
  update factors set last_step = $2, last_used_at = now()
   where id = $1::uuid and confirmed_at is not null and (last_step is null or last_step < $2)
  returning id`;

/**
 * Compares a code with the factors of a person. A code of an app is counted as wrong before it
 * is compared, in the control database, wherever it comes from: a person gets at most ten wrong
 * ones in 24 hours, and then none of an app. Recovery codes go on. The person gets a notice of
 * the fifth one.
 * @returns how the code is taken; undefined for a wrong code
 */
export async function checkCode(
  services: Pick<AuthServices, 'control' | 'secrets' | 'tokens'>,
  owner: CodeOwner,
  { code, recoveryCode }: SentCode,
  origin: CodeOrigin,
): Promise<TakeCode | undefined> {
  const { tenantId, userId } = owner;
  if (recoveryCode !== undefined) {
    return query => takeRecoveryCode(query, tenantId, userId, recoveryCode);
  }
  if (code === undefined || !(await countWrongCode(services, owner))) return undefined;

  const { control, secrets, tokens } = services;
  const factors = await queryControl<{ id: string; secret: Buffer }>(control, 'totp_of', totpOf, [
    tenantId,
    userId,
  ]);
  for (const { id, secret } of factors) {
    const key = secrets.open(secret, owners.factor(owner.tenantGuid, id));
    const step = stepOfCode(key, code, tokens.now());
    if (step === undefined) continue;

    return async query => {
      const taken = await query('take_code', takeStep, [id, step]);
      if (taken.length > 0) await query('forgive_code', forgiveCode, [userId]);
      return taken.length > 0;
    };
  }

  await addWrongCodesNotice(control, userId, origin);
  return undefined;
}

const countCode = `
  insert into wrong_codes as w (user_id, tenant_id, count) values ($1, $2, 1)
  on conflict (user_id) do update
    set count = case when w.since < now() - ${countingTime} then 1 else least(w.count + 1, 1000000) end,
        since = case when w.since < now() - ${countingTime} then now() else w.since end
  returning count`;
const forgiveCode = 'update wrong_codes set count = greatest(count - 1, 0) where user_id = $1';
const forgetCodes = 'delete from wrong_codes where user_id = $1';

/** Counts a code as wrong. Returns false if it must not be compared. */
async function countWrongCode(
  { control }: Pick<AuthServices, 'control'>,
  { userId, tenantId }: CodeOwner,
): Promise<boolean> {
  const [counted] = await queryControl<{ count: number }>(control, 'count_code', countCode, [
    userId,
    tenantId,
  ]);
  return (counted?.count ?? 0) <= maxWrongCodes;
}

/** Forgets the wrong codes of a person, who has a new password or new factors. */
export async function forgetWrongCodes(query: QueryControl, userId: number): Promise<void> {
  await query('forget_codes', forgetCodes, [userId]);
}
