import type { JWK } from 'jose';
import { isObject } from '../narrow.ts';
import { type FetchGuard, fetchJson } from './fetch-json.ts';
import type { Provider } from './provider.ts';
import { ProviderUnavailableError } from './provider-error.ts';

/** Maximum keys of a provider, whose set must be small enough to be searched for each token. */
const maxKeys = 20;

/**
 * Fetches the keys that a provider verifies tokens with, in the way of OpenID Connect Discovery
 * 1.0 §4: its description, which must name the issuer to the letter, and the keys at `jwks_uri`.
 * @param signal ends both requests
 * @returns the keys that can verify a token: see `publicKey`
 * @throws {ProviderUnavailableError}
 */
export async function fetchKeys(
  { issuer, tenantGuid }: Provider,
  guard: FetchGuard,
  signal: AbortSignal,
): Promise<JWK[]> {
  const description = await fetchJson({ url: descriptionUrl(issuer), tenantGuid }, guard, signal);
  const { issuer: named, jwks_uri: url } = description;
  if (named !== issuer) throw new ProviderUnavailableError('issuer');
  if (typeof url !== 'string') throw new ProviderUnavailableError('no_keys');

  const { keys } = await fetchJson({ url, tenantGuid }, guard, signal);
  if (!Array.isArray(keys)) throw new ProviderUnavailableError('no_keys');
  if (keys.length > maxKeys) throw new ProviderUnavailableError('too_many_keys');

  const usable = keys.map(publicKey).filter(key => key !== undefined);
  if (usable.length === 0) throw new ProviderUnavailableError('no_keys');

  return usable;
}

function descriptionUrl(issuer: string): string {
  return `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`;
}

const minRsaBits = 2_048;
const maxRsaBits = 8_192;
const maxExponentBits = 64;
const curves = ['P-256', 'P-384', 'P-521'];

/**
 * Returns the public members of a key that can verify a token; undefined for another key: a
 * secret, a key of another curve, and an RSA key that is too short to be safe, or so long that
 * each token would occupy a core (16,384 bits, or a long exponent).
 */
function publicKey(key: unknown): JWK | undefined {
  if (!isObject(key)) return undefined;

  const members = Object.fromEntries(
    ['kty', 'kid', 'alg', 'use', 'n', 'e', 'crv', 'x', 'y']
      .filter(name => typeof key[name] === 'string')
      .map(name => [name, key[name]]),
  );
  const { kty, crv, n, e } = members;

  if (kty === 'RSA') {
    const bits = bitsOf(n);
    const isSafe = bits >= minRsaBits && bits <= maxRsaBits && bitsOf(e) <= maxExponentBits;
    return isSafe ? { ...members, kty } : undefined;
  }
  if (kty === 'EC') return curves.includes(String(crv)) ? { ...members, kty } : undefined;

  return kty === 'OKP' && crv === 'Ed25519' ? { ...members, kty } : undefined;
}

/** Returns the length of a number in base64url, without leading zeros. */
function bitsOf(text: unknown): number {
  const bytes = Buffer.from(String(text ?? ''), 'base64url');
  const start = bytes.findIndex(byte => byte !== 0);
  if (start < 0) return 0;

  return 8 * (bytes.length - start) - (Math.clz32(bytes[start]!) - 24);
}
