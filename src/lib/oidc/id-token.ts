import { createHash } from 'node:crypto';
import type { Provider } from './provider.ts';
import { TokenRefusedError } from './provider-error.ts';
import { nameInClaims, requireFresh, requireParties, requireUnended } from './token-claims.ts';
import type { SignedToken } from './verify-token.ts';

/** Maximum age of an ID token, in seconds: it is exchanged right after the sign-in. */
const maxAgeS = 10 * 60;

/** The claims of an ID token (OpenID Connect Core 1.0 §2). */
export interface IdTokenClaims {
  /** The person, as this provider alone knows it. */
  readonly sub: string;
  /** The session at the provider, which a logout token may name. */
  readonly sid: string | undefined;
  /** The time from which the token is refused, in whole seconds since 1970. */
  readonly endsAt: number;
  /** `iat`: when it was issued by the clock of the provider, in seconds since 1970. */
  readonly issuedAt: number;
  /** The methods of the sign-in at the provider; empty if it does not say. */
  readonly amr: readonly string[];
  readonly email: string | undefined;
  /** True only if the provider says so. */
  readonly emailVerified: boolean;
  readonly givenName: string | undefined;
  readonly familyName: string | undefined;
  readonly name: string | undefined;
  /** All claims, for rules that compare some of them. */
  readonly all: Readonly<Record<string, unknown>>;
  /**
   * SHA-256 of what is signed. The signature is not in it: others of the same text may be good,
   * as with ECDSA, and would make another token of one that was used.
   */
  readonly hash: Buffer;
}

/**
 * Checks what a signed token says, as OpenID Connect Core 1.0 §3.1.3.7 asks, and more strictly:
 * it was issued within the last ten minutes, for clients of this provider alone, with a nonce.
 * @param now seconds since 1970, by the clock of the control database
 * @throws {TokenRefusedError}
 */
export function checkIdTokenClaims(
  token: string,
  { type, claims }: SignedToken,
  provider: Provider,
  now: number,
): IdTokenClaims {
  if (type !== undefined && type !== 'JWT') throw new TokenRefusedError('type');
  if (claims.events !== undefined) throw new TokenRefusedError('events');

  requireParties(claims, provider);
  const { azp, nonce, amr, email } = claims;
  if (azp !== undefined && !(typeof azp === 'string' && provider.clientIds.includes(azp))) {
    throw new TokenRefusedError('authorized_party');
  }

  const exp = requireUnended(claims, now);
  const iat = requireFresh(claims, now, maxAgeS);
  if (typeof nonce !== 'string' || nonce === '') throw new TokenRefusedError('nonce');

  const sub = nameInClaims(claims.sub);
  if (sub === undefined) throw new TokenRefusedError('subject');

  return {
    sub,
    sid: nameInClaims(claims.sid),
    endsAt: Math.ceil(Math.min(exp, iat + maxAgeS)) + 1,
    issuedAt: iat,
    amr: Array.isArray(amr) ? amr.filter(each => typeof each === 'string') : [],
    email: textOf(email),
    emailVerified: claims.email_verified === true,
    givenName: textOf(claims.given_name),
    familyName: textOf(claims.family_name),
    name: textOf(claims.name),
    all: claims,
    hash: createHash('sha256').update(signedText(token)).digest(),
  };
}

/** Returns a text that PostgreSQL can store; undefined for anything else. */
function textOf(value: unknown): string | undefined {
  const isText = typeof value === 'string' && value.isWellFormed() && !value.includes('\0');

  return isText ? value : undefined;
}

/** Returns the header and the claims of a token, as they are signed. */
function signedText(token: string): string {
  return token.slice(0, token.lastIndexOf('.'));
}
