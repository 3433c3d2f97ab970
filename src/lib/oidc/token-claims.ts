import { isInteger } from '../narrow.ts';
import type { Provider } from './provider.ts';
import { TokenRefusedError } from './provider-error.ts';

type Claims = Readonly<Record<string, unknown>>;

/** The time for which a clock of a provider may be ahead, in seconds. */
const maxAheadS = 60;

/**
 * Requires that a token is of this provider, and issued for clients of its configuration alone.
 * @throws {TokenRefusedError}
 */
export function requireParties({ iss, aud }: Claims, { issuer, clientIds }: Provider): void {
  if (iss !== issuer) throw new TokenRefusedError('issuer');

  const audiences: readonly unknown[] = Array.isArray(aud) ? aud : [aud];
  const isOurs = audiences.every(each => typeof each === 'string' && clientIds.includes(each));
  if (audiences.length === 0 || !isOurs) throw new TokenRefusedError('audience');
}

/**
 * Requires that a token was issued just now, by the clock of the control database.
 * @param maxAgeS the greatest age of `iat`
 * @returns `iat` in seconds since 1970
 * @throws {TokenRefusedError}
 */
export function requireFresh({ iat, nbf }: Claims, now: number, maxAgeS: number): number {
  if (!isTime(iat)) throw new TokenRefusedError('too_old');
  if (iat > now + maxAheadS) throw new TokenRefusedError('not_yet_valid');
  if (iat < now - maxAgeS) throw new TokenRefusedError('too_old');
  if (nbf !== undefined && (!isTime(nbf) || nbf > now + maxAheadS)) {
    throw new TokenRefusedError('not_yet_valid');
  }

  return iat;
}

/**
 * Returns the end of a token, in seconds since 1970.
 * @throws {TokenRefusedError} `expired`, also without an end
 */
export function requireUnended({ exp }: Claims, now: number): number {
  if (!isTime(exp) || exp <= now) throw new TokenRefusedError('expired');

  return exp;
}

/** Times of tokens are numbers (RFC 7519 §2), with fractions here and there. */
function isTime(value: unknown): value is number {
  return typeof value === 'number' && isInteger(Math.floor(value)) && value >= 0;
}

/** Maximum characters of a name that a provider gives a person or a session. */
const maxNameLength = 255;

/**
 * Returns a name that a provider gives, such as `sub`; undefined without one.
 * @throws {TokenRefusedError} `subject` for a value that cannot be stored as a name
 */
export function nameInClaims(value: unknown): string | undefined {
  if (value === undefined) return undefined;

  const isName =
    typeof value === 'string' &&
    value !== '' &&
    value.length <= maxNameLength &&
    value.isWellFormed() &&
    !value.includes('\0');
  if (!isName) throw new TokenRefusedError('subject');

  return value;
}
