import type { IncomingMessage } from 'node:http';
import { type Problem, problem } from '../errors.ts';

const maxTokenLength = 4_096; // characters; ours are under 1,500

/**
 * The bearer token of a request (RFC 6750 §2.1); undefined when there is none, or another scheme.
 * @throws {Problem} `invalid_request` when there are several Authorization headers, of which Node keeps only the first
 */
export function bearerToken(request: IncomingMessage): string | undefined {
  const { rawHeaders } = request;
  let count = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) if (isAuthorization(rawHeaders[i])) count++;
  if (count > 1) throw problem('invalid_request', { detail: 'There must be at most one Authorization header.' });
  // Whatever follows the scheme is the token, also when it cannot be one: a mangled token is a bad one, not none.
  const { authorization = '' } = request.headers;
  const scheme = /^Bearer +/i.exec(authorization)?.[0];
  return scheme && authorization.slice(scheme.length);
}

function isAuthorization(name = ''): boolean {
  return name.length === 'authorization'.length && name.toLowerCase() === 'authorization';
}

/** `WWW-Authenticate` as in RFC 6750 §3. */
export function invalidToken(code: 'invalid_token' | 'token_expired' = 'invalid_token'): Problem {
  return problem(code, { headers: { 'WWW-Authenticate': 'Bearer error="invalid_token"' } });
}

export interface ParsedToken {
  readonly header: Readonly<Record<string, unknown>>;
  readonly payload: Readonly<Record<string, unknown>>;
}

/**
 * Header and payload of a JSON Web Token in compact form (RFC 7519), *not verified*.
 * @throws {Problem} `invalid_token` when it is not one
 */
export function parseToken(token: string): ParsedToken {
  const [header, payload, signature, ...more] = token.length <= maxTokenLength ? token.split('.') : [];
  if (!header || !payload || !signature || more.length > 0) throw invalidToken();
  return { header: parseSegment(header), payload: parseSegment(payload) };
}

function parseSegment(segment: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(Buffer.from(segment, 'base64url').toString());
    if (isObject(value)) return value;
  } catch {
    // not JSON: not a token
  }
  throw invalidToken();
}

/** A JSON object: neither null nor an array. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
