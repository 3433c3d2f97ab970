import type { IncomingMessage } from 'node:http';
import { isObject } from '../../narrow.ts';
import { type Problem, problem, type UnauthorizedReason } from '../../problems.ts';

const maxTokenLength = 4_096; // characters; the tokens of this service have fewer than 1,500

/**
 * Returns the bearer token of a request (RFC 6750 §2.1); undefined for no Authorization header
 * or another scheme.
 */
export function bearerToken({
  headers: { authorization = '' },
}: IncomingMessage): string | undefined {
  // All text after the scheme is the token: a malformed token must be rejected, not treated as
  // no token.
  const scheme = /^Bearer +/i.exec(authorization)?.[0];
  return scheme && authorization.slice(scheme.length);
}

/**
 * Returns a problem with the `WWW-Authenticate` header of RFC 6750 §3. The reason is logged,
 * and not sent.
 */
export function invalidToken(
  reason: UnauthorizedReason,
  code: 'invalid_token' | 'token_expired' = 'invalid_token',
): Problem {
  return problem(code, { reason, headers: { 'WWW-Authenticate': 'Bearer error="invalid_token"' } });
}

export interface ParsedToken {
  readonly header: Readonly<Record<string, unknown>>;
  readonly payload: Readonly<Record<string, unknown>>;
}

/**
 * Parses a JSON Web Token in compact form (RFC 7519) into header and payload. Verifies
 * *nothing*.
 * @throws {Problem} `invalid_token` when the text is not a JSON Web Token
 */
export function parseToken(token: string): ParsedToken {
  const [header, payload, signature, ...extra] =
    token.length <= maxTokenLength ? token.split('.') : [];
  if (!header || !payload || !signature || extra.length > 0) throw invalidToken('malformed');
  return { header: parseSegment(header), payload: parseSegment(payload) };
}

function parseSegment(segment: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(Buffer.from(segment, 'base64url').toString());
    if (isObject(value)) return value;
  } catch {
    // not JSON, so not a token
  }
  throw invalidToken('malformed');
}
