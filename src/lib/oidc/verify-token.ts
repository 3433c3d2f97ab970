import type { CompactVerifyResult, JWK } from 'jose';
import { codeOf, isObject } from '../narrow.ts';
import type { Provider } from './provider.ts';
import { type TokenRefusal, TokenRefusedError } from './provider-error.ts';
import type { ProviderKeys } from './provider-keys.ts';

/** Maximum characters of a token. */
const maxLength = 16 * 1024;

/** Signatures of a key that its provider alone has: no HMAC, and not `none`. */
const algorithms = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];

/** A token whose signature is the provider's. */
export interface SignedToken {
  readonly type: string | undefined;
  readonly claims: Readonly<Record<string, unknown>>;
}

/**
 * Verifies the signature of a token. Keys are fetched again if it names one that is unknown.
 * @throws {TokenRefusedError}
 * @throws {ProviderUnavailableError} when there are no keys
 */
export async function verifySignature(
  token: string,
  provider: Provider,
  keys: Pick<ProviderKeys, 'read' | 'readAgain'>,
): Promise<SignedToken> {
  if (token.length > maxLength) throw new TokenRefusedError('malformed');
  // Nobody calls a provider for a token that no key of it could make good.
  const { alg } = unverifiedPart(token, 0);
  if (typeof alg !== 'string' || !algorithms.includes(alg)) {
    throw new TokenRefusedError('algorithm');
  }

  const verified = await verifyBy(await keys.read(provider), token).catch(
    async (error: unknown) => {
      const again = isRefusal(error, 'key') ? await keys.readAgain(provider) : undefined;
      if (!again) throw error;

      return verifyBy(again, token);
    },
  );
  const claims = parseObject(verified.payload);
  const { typ } = verified.protectedHeader;

  return { type: typ, claims };
}

/**
 * Returns the issuer that a token names, which is not verified: it says which provider's keys to
 * try. Undefined for a text that is no token, or names none that a provider can have.
 */
export function issuerOfToken(token: string): string | undefined {
  if (token.length > maxLength) return undefined;

  try {
    const { iss } = unverifiedPart(token, 1);
    return typeof iss === 'string' && !iss.includes('\0') ? iss : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Parses the header (0) or the claims (1) of a token.
 * @throws {TokenRefusedError} `malformed`
 */
function unverifiedPart(token: string, index: 0 | 1): Record<string, unknown> {
  const parts = token.split('.');
  if (parts.length !== 3) throw new TokenRefusedError('malformed');

  return parseObject(Buffer.from(parts[index] ?? '', 'base64url'));
}

/** @throws {TokenRefusedError} `malformed` */
function parseObject(bytes: Uint8Array): Record<string, unknown> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    // The text is somebody's token: it goes nowhere.
  }
  if (!isObject(parsed)) throw new TokenRefusedError('malformed');

  return parsed;
}

/** The refusals by the codes of jose. */
const refusals: Readonly<Record<string, TokenRefusal>> = {
  ERR_JOSE_ALG_NOT_ALLOWED: 'algorithm',
  ERR_JOSE_NOT_SUPPORTED: 'algorithm',
  ERR_JWKS_NO_MATCHING_KEY: 'key',
  ERR_JWKS_MULTIPLE_MATCHING_KEYS: 'key',
  ERR_JWS_SIGNATURE_VERIFICATION_FAILED: 'signature',
};

/** @throws {TokenRefusedError} */
async function verifyBy(keys: readonly JWK[], token: string): Promise<CompactVerifyResult> {
  const { compactVerify, createLocalJWKSet } = await import('jose');
  const findKey = createLocalJWKSet({ keys: [...keys] });

  try {
    return await compactVerify(token, findKey, { algorithms });
  } catch (error) {
    throw new TokenRefusedError(refusals[codeOf(error) ?? ''] ?? 'malformed', error);
  }
}

function isRefusal(error: unknown, reason: TokenRefusal): boolean {
  return error instanceof TokenRefusedError && error.reason === reason;
}
