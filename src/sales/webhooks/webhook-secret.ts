import { createHmac, randomBytes } from 'node:crypto';
import { owners, SealingKey, type SecretBox } from '../../control/secret-box.ts';

/** Seals the secrets of the endpoints of one tenant, whose database stores them. */
export interface SecretSealer {
  seal(secret: string, webhookId: number): Buffer;
  /** @throws when the key of another tenant has sealed the secret, as in a clone */
  open(sealed: Uint8Array, webhookId: number): string;
}

/** Returns a secret; undefined when the key of another tenant has sealed it, as in a clone. */
export function openOwn(
  sealer: SecretSealer,
  sealed: Uint8Array,
  webhookId: number,
): string | undefined {
  try {
    return sealer.open(sealed, webhookId);
  } catch {
    return undefined;
  }
}

const prefix = 'whsec_';

/** A new secret, as Standard Webhooks writes it. */
export function createSecret(): string {
  return prefix + randomBytes(24).toString('base64');
}

/** A new key for the secrets of one tenant, sealed for the control database. */
export function createTenantKey(secrets: SecretBox, tenantGuid: string): Buffer {
  return secrets.seal(randomBytes(32), owners.webhookKey(tenantGuid));
}

/**
 * The key is sealed by the master key, and itself seals the secrets: a change of the master key
 * needs no tenant's database.
 */
export function openTenantKey(
  secrets: SecretBox,
  tenantGuid: string,
  sealedKey: Uint8Array,
): SecretSealer {
  const key = new SealingKey(secrets.open(sealedKey, owners.webhookKey(tenantGuid)));
  const ownerOf = (webhookId: number): string => `webhook:${tenantGuid}:${webhookId}`;
  return {
    seal: (secret, webhookId) => key.seal(secret, ownerOf(webhookId)),
    open: (sealed, webhookId) => key.open(sealed, ownerOf(webhookId)).toString(),
  };
}

/**
 * The headers of a message, as Standard Webhooks specifies them.
 * @param secrets the present one, then the former ones whose time has not ended, the newest
 *   first
 * @param now ms since 1970
 */
export function signedHeaders(id: string, body: string, secrets: readonly string[], now: number) {
  const timestamp = String(Math.floor(now / 1_000));

  const sign = (secret: string): string => {
    const key = Buffer.from(secret.slice(prefix.length), 'base64');
    return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
  };

  return {
    'content-type': 'application/json',
    'user-agent': 'sales-back-office-webhooks',
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': secrets.map(sign).join(' '),
  };
}
