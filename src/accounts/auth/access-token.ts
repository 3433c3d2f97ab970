import { type KeyObject, randomUUID } from 'node:crypto';
import jwt from 'jsonwebtoken';
import type { TenantRecord } from '../../control/records.ts';
import { accessTokenLifetimeSeconds, clockSkewSeconds } from '../../control/token-lifetime.ts';
import { invalidToken, type ParsedToken } from '../../lib/http/request/bearer-token.ts';
import { isUuid } from '../../lib/http/request/uuid.ts';
import { isInteger, isObject } from '../../lib/narrow.ts';
import { problem } from '../../lib/problems.ts';

/** The claims of an access token whose signature was verified. */
export interface AccessClaims {
  readonly user_guid: string;
  readonly tenant_id: number;
  readonly tenant_guid: string;
  readonly email: string;
  readonly permissions: readonly string[];
  readonly entity_type: 'supplier' | 'customer' | null;
  /** The session, or the key of a program. */
  readonly sid: string;
  /** The guid of a program, which is that of the user; undefined for a person. */
  readonly client_id?: string | undefined;
  readonly jti: string;
  /** Seconds since 1970. */
  readonly exp: number;
}

/** The claims that the holder of a new token decides. A program has no address. */
type IssuedClaims = Omit<AccessClaims, 'tenant_id' | 'tenant_guid' | 'email' | 'jti' | 'exp'> & {
  readonly email?: string;
  /** The proofs of the login, by RFC 8176; for clients, this service asks the session. */
  readonly amr?: readonly string[];
};

export interface TokenSettings {
  /** The id of the installation: the same for all processes and addresses. */
  issuer: string;
  audience: string;
  /** The wall clock, in seconds since 1970. Tests replace it. */
  now: () => number;
}

/**
 * Signs an access token (RFC 9068) with the tenant's active key, HS512, for
 * `accessTokenLifetimeSeconds`.
 * @throws {Problem} `unavailable` when the tenant has no active key
 */
export function signAccessToken(
  tenant: TenantRecord,
  claims: IssuedClaims,
  { issuer, audience, now }: TokenSettings,
): string {
  const kid = tenant.activeKid;
  const key = kid === undefined ? undefined : tenant.keys.get(kid);
  if (kid === undefined || !key) {
    throw problem('unavailable', { cause: new Error('the tenant has no active signing key') });
  }

  const iat = now();
  return jwt.sign(
    {
      iss: issuer,
      aud: audience,
      sub: claims.user_guid,
      iat,
      exp: iat + accessTokenLifetimeSeconds,
      jti: randomUUID(),
      tenant_id: tenant.id,
      tenant_guid: tenant.guid,
      ...claims,
    },
    key,
    { algorithm: 'HS512', header: { alg: 'HS512', typ: 'at+jwt', kid } },
  );
}

/**
 * Verifies signature and claims with the keys of the tenant that the token claims.
 * @param header the parsed header of the token
 * @throws {Problem} `invalid_token`; `token_expired` only after the signature and all other
 *   claims were verified
 */
export function verifyAccessToken(
  token: string,
  header: ParsedToken['header'],
  tenant: TenantRecord,
  settings: TokenSettings,
): AccessClaims {
  const key = verificationKey(header, tenant);
  let payload: unknown;
  try {
    payload = jwt.verify(token, key, {
      algorithms: ['HS512'],
      ignoreExpiration: true,
      ignoreNotBefore: true,
    });
  } catch {
    throw invalidToken('signature');
  }

  return parseClaims(payload, tenant, settings);
}

/**
 * Returns the time from which an access token is refused, in seconds since 1970. It is the end
 * of the token for requests and for streams.
 */
export function endOfToken({ exp }: Pick<AccessClaims, 'exp'>): number {
  return exp + clockSkewSeconds;
}

/** @throws {Problem} `token_expired` from the end of the token on */
export function requireUnexpired(endsAt: number, { now }: Pick<TokenSettings, 'now'>): void {
  if (now() >= endsAt) throw invalidToken('expired', 'token_expired');
}

/**
 * Selects the key. A token of this service has exactly these header parameters and no others
 * (`crit`, `jku`, `zip` …).
 */
function verificationKey(header: Record<string, unknown>, tenant: TenantRecord): KeyObject {
  const { alg, typ, kid, ...others } = header;
  const key = typeof kid === 'string' ? tenant.keys.get(kid) : undefined;
  if (alg !== 'HS512' || typ !== 'at+jwt' || Object.keys(others).length > 0) {
    throw invalidToken('header');
  }
  if (!key) throw invalidToken('key');
  return key;
}

function parseClaims(
  payload: unknown,
  tenant: TenantRecord,
  settings: TokenSettings,
): AccessClaims {
  const { audience, now } = settings;
  if (!isObject(payload)) throw invalidToken('claims');

  const {
    iss,
    aud,
    sub,
    iat,
    nbf,
    exp,
    jti,
    sid,
    user_guid,
    tenant_id,
    tenant_guid,
    email,
    permissions,
    entity_type,
    client_id,
  } = payload;

  if (iss !== settings.issuer) throw invalidToken('issuer');
  if (aud !== audience) throw invalidToken('audience');

  const latestStart = now() + clockSkewSeconds;
  const valid =
    tenant_id === tenant.id &&
    tenant_guid === tenant.guid &&
    typeof user_guid === 'string' &&
    sub === user_guid &&
    (client_id === undefined || client_id === user_guid) &&
    typeof jti === 'string' &&
    isUuid(sid) &&
    isInteger(iat) &&
    isInteger(exp) &&
    (nbf === undefined || isInteger(nbf)) &&
    exp > iat &&
    exp - iat <= accessTokenLifetimeSeconds + clockSkewSeconds;
  if (!valid) throw invalidToken('claims');

  if (iat > latestStart || (nbf ?? 0) > latestStart) {
    throw invalidToken('not_yet_valid');
  }
  requireUnexpired(endOfToken({ exp }), settings);

  return {
    user_guid,
    tenant_id: tenant.id,
    tenant_guid: tenant.guid,
    email: typeof email === 'string' ? email : '',
    permissions: Array.isArray(permissions)
      ? permissions.filter(item => typeof item === 'string')
      : [],
    entity_type: entity_type === 'supplier' || entity_type === 'customer' ? entity_type : null,
    sid,
    client_id: client_id === undefined ? undefined : user_guid,
    jti,
    exp,
  };
}
