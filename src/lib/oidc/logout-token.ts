import { createHash } from 'node:crypto';
import { isObject } from '../narrow.ts';
import type { Provider } from './provider.ts';
import { TokenRefusedError } from './provider-error.ts';
import { nameInClaims, requireFresh, requireParties, requireUnended } from './token-claims.ts';
import type { SignedToken } from './verify-token.ts';

/** Maximum age of a logout token, in seconds: its provider sends it at once. */
const maxAgeS = 2 * 60;
const logoutEvent = 'http://schemas.openid.net/event/backchannel-logout';
const types = [undefined, 'JWT', 'logout+jwt'];

/**
 * What a logout token says (OpenID Connect Back-Channel Logout 1.0 §2.4): `sub`, `sid`, or both.
 */
export interface LogoutTokenClaims {
  /** The person, as the provider knows it. */
  readonly sub: string | undefined;
  /** The session at the provider. */
  readonly sid: string | undefined;
  /** SHA-256 of the name of the token (`jti`) at its provider: a token is good once. */
  readonly hash: Buffer;
  /** The time from which the token is refused, in whole seconds since 1970. */
  readonly endsAt: number;
  /** `iat`: when it was issued by the clock of the provider, in seconds since 1970. */
  readonly issuedAt: number;
}

/**
 * Checks what a signed logout token says, as Back-Channel Logout 1.0 §2.6 asks.
 * @param now seconds since 1970, by the clock of the control database
 * @throws {TokenRefusedError}
 */
export function checkLogoutTokenClaims(
  { type, claims }: SignedToken,
  provider: Provider,
  now: number,
): LogoutTokenClaims {
  if (!types.includes(type)) throw new TokenRefusedError('type');
  // An ID token has one, and never names an event.
  if (claims.nonce !== undefined) throw new TokenRefusedError('nonce');

  const { events } = claims;
  if (!isObject(events) || !isObject(events[logoutEvent])) throw new TokenRefusedError('events');

  requireParties(claims, provider);
  const iat = requireFresh(claims, now, maxAgeS);
  // Providers of before the final standard send none.
  if (claims.exp !== undefined) requireUnended(claims, now);

  const sub = nameInClaims(claims.sub);
  const sid = nameInClaims(claims.sid);
  if (sub === undefined && sid === undefined) throw new TokenRefusedError('subject');

  const { jti } = claims;
  if (typeof jti !== 'string' || jti === '') throw new TokenRefusedError('token_id');

  const hash = createHash('sha256').update(`logout ${provider.guid} ${jti}`).digest();

  return { sub, sid, hash, endsAt: Math.ceil(iat + maxAgeS) + 1, issuedAt: iat };
}
