import { z } from 'zod';
import { type QueryControl, queryControl } from '../../../control/database.ts';
import { type ProblemMembers, problem } from '../../../lib/problems.ts';
import type { FieldErrors } from '../../../lib/runtime/field-error.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { AuthServices } from '../auth-services.ts';
import { passkeyChallengeOf } from './challenges.ts';
import { type CodeOwner, checkCode, codeField } from './check-code.ts';
import { assertionField } from './passkey-fields.ts';
import { listPasskeys, takeSignature } from './passkey-store.ts';
import { checkAssertion, requestOptions, rpIdFor } from './passkeys.ts';

/** The fields of a body that proves a second factor: one of them. */
export const proofFields = {
  code: codeField().optional().describe('The present code of an authenticator app.'),
  recoveryCode: z.string().max(100).optional().describe('A recovery code, in place of `code`.'),
  passkey: assertionField
    .optional()
    .describe(
      'In place of `code`: `toJSON()` of what `navigator.credentials.get` has returned for the ' +
        'options `passkey` of the refused request.',
    ),
};
const proofObject = z.object(proofFields);
export type SentProof = z.output<typeof proofObject>;

/** Returns the errors of a body that has not exactly one proof. */
export function errorsOfProof({ code, recoveryCode, passkey }: SentProof): FieldErrors {
  if ([code, recoveryCode, passkey].filter(proof => proof !== undefined).length === 1) return {};
  const message = 'is required, or recoveryCode or passkey instead';
  return { code: [{ message, code: 'required' }] };
}

/** A proof of a second factor that is right, and was not taken yet. */
export interface FactorProof {
  /** The method that it proves, by RFC 8176. */
  readonly method: 'otp' | 'pop';
  /**
   * Takes it in the transaction of what it permits, which has locked the user: each once, at two
   * processes too.
   * @throws {Problem} `invalid_code` or `invalid_passkey` if it was taken meanwhile, or its factor
   *   removed
   */
  readonly take: (query: QueryControl) => Promise<void>;
}

/**
 * Checks the proof of a second factor.
 * @param challenge that of the login or of the refused verification, which a passkey has signed
 * @throws {Problem} `invalid_code`, `invalid_passkey`
 */
export async function checkProof(
  services: Pick<AuthServices, 'control' | 'secrets' | 'tokens'>,
  { tenant, origin }: Pick<RequestContext, 'tenant' | 'origin'>,
  owner: CodeOwner,
  { passkey, ...codes }: SentProof,
  challenge: string,
): Promise<FactorProof> {
  if (passkey === undefined) {
    const takeCode = await checkCode(services, owner, codes, origin);
    if (!takeCode) throw problem('invalid_code');

    return {
      method: 'otp',
      take: async query => {
        if (!(await takeCode(query))) throw problem('invalid_code');
      },
    };
  }

  const stored = await listPasskeys(services.control, owner);
  const used = stored.find(each => each.credentialId.toString('base64url') === passkey.id);
  const isChallenge = (sent: string) => sent === passkeyChallengeOf(challenge);
  const count = used && (await checkAssertion(tenant, passkey, used, isChallenge, false));
  if (!used || count === undefined) throw problem('invalid_passkey');

  return {
    method: 'pop',
    take: async query => {
      if (!(await takeSignature(query, used, count))) throw problem('invalid_passkey');
    },
  };
}

const hasTotp = `
  select exists (select from factors
                  where tenant_id = $1 and user_id = $2 and kind = 'totp' and confirmed_at is not null) as "hasTotp"`;

/**
 * Returns the members of `second_factor_required`: what completes the request, and the options
 * for the passkeys of the person on the page that sent it.
 */
export async function wantedProof(
  { control }: Pick<AuthServices, 'control'>,
  context: RequestContext,
  owner: Pick<CodeOwner, 'tenantId' | 'userId'>,
  challenge: string,
): Promise<ProblemMembers> {
  const values = [owner.tenantId, owner.userId];
  const [apps] = await queryControl<{ hasTotp: boolean }>(control, 'has_totp', hasTotp, values);
  const rpId = rpIdFor(context);
  const passkeys = (await listPasskeys(control, owner)).filter(each => each.rpId === rpId);
  const methods = [
    ...(apps?.hasTotp ? ['totp'] : []),
    ...(passkeys.length > 0 ? ['passkey'] : []),
    'recoveryCode',
  ];
  if (rpId === undefined || passkeys.length === 0) return { challenge, methods };

  const signed = passkeyChallengeOf(challenge);
  return { challenge, methods, passkey: requestOptions(rpId, signed, 'preferred', passkeys) };
}
