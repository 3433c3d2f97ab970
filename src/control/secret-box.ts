import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';

const nonceBytes = 12; // NIST SP 800-38D §5.2.1.1
const tagBytes = 16;

/** Seals secrets at rest, and makes message authentication codes, under keys derived from the master key. */
export interface SecretBox {
  /** AES-256-GCM. `owner` says what the secret belongs to; sealed text moved to another owner does not open. */
  seal(secret: Uint8Array | string, owner: string): Buffer;
  /** @throws {Error} when the text was made under another master key, for another owner, or was changed */
  open(sealed: Uint8Array, owner: string): Buffer;
  /** HMAC-SHA-256, 32 bytes, under a key of its own for each purpose. */
  mac(purpose: string, ...parts: string[]): Buffer;
}

/** @param masterKey 32 random bytes; the keys in use are derived from it (HKDF-SHA-256, RFC 5869), one per purpose */
export function createSecretBox(masterKey: Uint8Array): SecretBox {
  const derive = (purpose: string): Buffer => Buffer.from(hkdfSync('sha256', masterKey, '', purpose, 32));
  const sealingKey = derive('seal');
  return {
    seal(secret, owner) {
      const nonce = randomBytes(nonceBytes);
      const cipher = createCipheriv('aes-256-gcm', sealingKey, nonce, { authTagLength: tagBytes }).setAAD(
        Buffer.from(owner),
      );
      return Buffer.concat([nonce, cipher.update(secret), cipher.final(), cipher.getAuthTag()]);
    },
    open(sealed, owner) {
      const decipher = createDecipheriv('aes-256-gcm', sealingKey, sealed.subarray(0, nonceBytes), {
        authTagLength: tagBytes,
      })
        .setAAD(Buffer.from(owner))
        .setAuthTag(sealed.subarray(-tagBytes));
      return Buffer.concat([decipher.update(sealed.subarray(nonceBytes, -tagBytes)), decipher.final()]);
    },
    mac(purpose, ...parts) {
      return createHmac('sha256', derive(`mac:${purpose}`))
        .update(JSON.stringify(parts))
        .digest();
    },
  };
}

/** What each kind of secret is bound to; one place, so that sealing and opening cannot disagree. */
export const owners = {
  signingKey: (tenantGuid: string, kid: string): string => `signing_key:${tenantGuid}:${kid}`,
  rolePassword: (tenantGuid: string): string => `role_password:${tenantGuid}`,
  serverUrl: (serverName: string): string => `server_url:${serverName}`,
};
