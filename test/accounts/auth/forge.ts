import { createHmac } from 'node:crypto';
import jwt from 'jsonwebtoken';
import { SigningKey } from '../../../src/control/control-entities.ts';
import { owners } from '../../../src/control/secret-box.ts';
import type { TestTenant, World } from '../../support/world.ts';

/** A tenant's signing key with its secret, which only the service should know. */
export interface TenantKey {
  kid: string;
  secret: Buffer;
}

/**
 * Returns the key that signs a tenant's tokens, opened with the secrets of the installation.
 */
export async function activeKey(
  { control, installation }: World,
  tenant: TestTenant,
): Promise<TenantKey> {
  const { kid, secret } = await control.em
    .fork()
    .findOneOrFail(SigningKey, { tenant: tenant.id, status: 'active' });
  return { kid, secret: installation.secrets.open(secret, owners.signingKey(tenant.guid, kid)) };
}

/** Adds a key to a tenant. A retiring key verifies tokens, a disabled key does not. */
export async function addKey(
  { control, installation }: World,
  tenant: TestTenant,
  { kid, secret }: TenantKey,
  status: 'retiring' | 'disabled',
): Promise<void> {
  const sealed = installation.secrets.seal(secret, owners.signingKey(tenant.guid, kid));
  await control.em
    .fork()
    .execute('insert into signing_keys (kid, tenant_id, secret, status) values (?, ?, ?, ?)', [
      kid,
      tenant.id,
      sealed,
      status,
    ]);
}

/** Encodes a segment of a token: a string unchanged, anything else as JSON. */
export function encodeSegment(value: unknown): string {
  return Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString(
    'base64url',
  );
}

function sign(input: string, secret: string | Buffer, hash = 'sha512'): string {
  return createHmac(hash, secret).update(input).digest('base64url');
}

/** Makes a token from any header and payload, valid or not, and signs it. */
export function forgeToken(
  header: unknown,
  payload: unknown,
  secret: string | Buffer,
  hash = 'sha512',
): string {
  const input = `${encodeSegment(header)}.${encodeSegment(payload)}`;
  return `${input}.${sign(input, secret, hash)}`;
}

/** Decodes the claims of a token without verifying it. */
export function claimsOf(token: string): Record<string, unknown> {
  return jwt.decode(token, { json: true }) ?? {};
}

/** Returns the token with changed claims, signed with the given key and a correct header. */
export function resignToken(
  token: string,
  changes: Record<string, unknown>,
  { kid, secret }: TenantKey,
): string {
  return forgeToken(
    { alg: 'HS512', typ: 'at+jwt', kid },
    { ...claimsOf(token), ...changes },
    secret,
  );
}
