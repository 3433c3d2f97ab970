import { createHmac } from 'node:crypto';
import jwt from 'jsonwebtoken';
import { SigningKey } from '../../src/control/fleet-entities.ts';
import { owners } from '../../src/control/secret-box.ts';
import type { TestTenant, World } from '../support/world.ts';

/** A tenant's signing key, as only its service should know it. */
export interface TenantKey {
  kid: string;
  secret: Buffer;
}

/** The key that signs a tenant's tokens, opened with the installation's own secrets. */
export async function activeKey({ control, installation }: World, tenant: TestTenant): Promise<TenantKey> {
  const { kid, secret } = await control.em.fork().findOneOrFail(SigningKey, { tenant: tenant.id, status: 'active' });
  return { kid, secret: installation.secrets.open(secret, owners.signingKey(tenant.guid, kid)) };
}

/** Gives a tenant one more key, which verifies (retiring) or does not (disabled). */
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

/** One segment of a token: a string as it is, anything else as JSON. */
export function encodeSegment(value: unknown): string {
  return Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
}

function sign(input: string, secret: string | Buffer, hash = 'sha512'): string {
  return createHmac(hash, secret).update(input).digest('base64url');
}

/** A token made by hand, signed over whatever stands in it. */
export function forgeToken(header: unknown, payload: unknown, secret: string | Buffer, hash = 'sha512'): string {
  const input = `${encodeSegment(header)}.${encodeSegment(payload)}`;
  return `${input}.${sign(input, secret, hash)}`;
}

/** What a token says. */
export function claimsOf(token: string): Record<string, unknown> {
  return jwt.decode(token, { json: true }) ?? {};
}

/** The same token with other claims, signed properly. */
export function resignToken(token: string, changes: Record<string, unknown>, { kid, secret }: TenantKey): string {
  return forgeToken({ alg: 'HS512', typ: 'at+jwt', kid }, { ...claimsOf(token), ...changes }, secret);
}
