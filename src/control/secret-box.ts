import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';

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
  /** Whether a code was made for this purpose and these parts; compared in constant time. */
  verifyMac(code: Uint8Array, purpose: string, ...parts: string[]): boolean;
}

/**
 * @param masterKey 32 random bytes; the keys in use are derived from it (HKDF-SHA-256, RFC 5869), one per purpose
 * @param previous the master key before it: what that one sealed still opens, and its codes still hold
 */
export function createSecretBox(masterKey: Uint8Array, previous?: Uint8Array): SecretBox {
  const current = createKeyring(masterKey);
  const before = previous && createKeyring(previous);
  return {
    seal(secret, owner) {
      const nonce = randomBytes(nonceBytes);
      const cipher = createCipheriv('aes-256-gcm', current.sealing, nonce, { authTagLength: tagBytes });
      cipher.setAAD(Buffer.from(owner));
      return Buffer.concat([nonce, cipher.update(secret), cipher.final(), cipher.getAuthTag()]);
    },
    open(sealed, owner) {
      try {
        return openWith(current.sealing, sealed, owner);
      } catch (error) {
        if (before) return openWith(before.sealing, sealed, owner);
        throw error;
      }
    },
    mac: (purpose, ...parts) => codeOf(current, purpose, parts),
    verifyMac: (code, purpose, ...parts) =>
      [current, before].some(keyring => keyring && isCode(code, codeOf(keyring, purpose, parts))),
  };
}

interface Keyring {
  readonly sealing: Buffer;
  readonly derive: (purpose: string) => Buffer;
}

function createKeyring(masterKey: Uint8Array): Keyring {
  const derive = (purpose: string): Buffer => Buffer.from(hkdfSync('sha256', masterKey, '', purpose, 32));
  return { sealing: derive('seal'), derive };
}

function codeOf({ derive }: Keyring, purpose: string, parts: string[]): Buffer {
  return createHmac('sha256', derive(`mac:${purpose}`))
    .update(JSON.stringify(parts))
    .digest();
}

function isCode(code: Uint8Array, expected: Buffer): boolean {
  return code.length === expected.length && timingSafeEqual(code, expected);
}

function openWith(key: Buffer, sealed: Uint8Array, owner: string): Buffer {
  const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, nonceBytes), { authTagLength: tagBytes });
  decipher.setAAD(Buffer.from(owner)).setAuthTag(sealed.subarray(-tagBytes));
  return Buffer.concat([decipher.update(sealed.subarray(nonceBytes, -tagBytes)), decipher.final()]);
}

/** What each kind of secret is bound to; one place, so that sealing and opening cannot disagree. */
export const owners = {
  signingKey: (tenantGuid: string, kid: string): string => `signing_key:${tenantGuid}:${kid}`,
  rolePassword: (tenantGuid: string): string => `role_password:${tenantGuid}`,
  serverUrl: (serverName: string): string => `server_url:${serverName}`,
};
