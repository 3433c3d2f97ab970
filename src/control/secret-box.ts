import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';

const nonceBytes = 12; // NIST SP 800-38D §5.2.1.1
const tagBytes = 16;
const fingerprintBytes = 16;

/** Encrypts secrets at rest. */
export interface Sealer {
  /**
   * Encrypts with AES-256-GCM. `owner` names what the secret belongs to: moved to another owner, it cannot be opened.
   */
  seal(secret: Uint8Array | string, owner: string): Buffer;
  /** Decrypts. @throws {Error} when the text was sealed with another master key or for another owner, or was changed */
  open(sealed: Uint8Array, owner: string): Buffer;
}

/** One master key. */
export interface MasterKey extends Sealer {
  /** Names the key, and tells nothing of it. 22 characters: 16 bytes that HKDF derives from the key. */
  readonly fingerprint: string;
}

/** A key for one purpose, derived from a master key. */
export interface DerivedKey {
  /** Of the master key. */
  readonly fingerprint: string;
  readonly key: Buffer;
}

/** Encrypts secrets at rest and computes message authentication codes, with keys derived from the master key. */
export type SecretBox = ReturnType<typeof createSecretBox>;

/**
 * @param masterKey 32 random bytes, from which the key of each purpose is derived (HKDF-SHA-256, RFC 5869)
 * @param previous the former master key: secrets that it sealed can still be opened, and its codes are still valid
 */
export function createSecretBox(masterKey: Uint8Array, previous?: Uint8Array) {
  const current = createKeyring(masterKey);
  const former = previous && createKeyring(previous);
  return {
    seal: current.sealer.seal,
    open(sealed: Uint8Array, owner: string): Buffer {
      try {
        return current.sealer.open(sealed, owner);
      } catch (error) {
        if (former) return former.sealer.open(sealed, owner);
        throw error;
      }
    },
    /** The master key alone. */
    current: current.sealer,
    /** The previous master key alone. */
    previous: former?.sealer,
    /** HMAC-SHA-256, 32 bytes. Each purpose has its own key. */
    mac: (purpose: string, ...parts: string[]) => computeMac(current, purpose, parts),
    /** Checks, in constant time, that a code was computed for this purpose and these parts. */
    verifyMac: (code: Uint8Array, purpose: string, ...parts: string[]): boolean =>
      [current, former].some(keyring => keyring && equalsCode(code, computeMac(keyring, purpose, parts))),
    /** Keys of 32 bytes for a purpose, of each master key: that of the present one first. */
    deriveKeys: (purpose: string): DerivedKey[] =>
      [current, former].flatMap(keyring => {
        return keyring ? [{ fingerprint: keyring.sealer.fingerprint, key: keyring.derive(purpose) }] : [];
      }),
  };
}

interface Keyring {
  readonly sealer: MasterKey;
  readonly derive: (purpose: string) => Buffer;
}

function createKeyring(masterKey: Uint8Array): Keyring {
  const derive = (purpose: string): Buffer => Buffer.from(hkdfSync('sha256', masterKey, '', purpose, 32));
  const fingerprint = derive('fingerprint').subarray(0, fingerprintBytes).toString('base64url');
  return { sealer: createSealer(derive('seal'), fingerprint), derive };
}

function createSealer(key: Buffer, fingerprint: string): MasterKey {
  return {
    fingerprint,
    seal(secret, owner) {
      const nonce = randomBytes(nonceBytes);
      const cipher = createCipheriv('aes-256-gcm', key, nonce, { authTagLength: tagBytes });
      cipher.setAAD(Buffer.from(owner));
      return Buffer.concat([nonce, cipher.update(secret), cipher.final(), cipher.getAuthTag()]);
    },
    open(sealed, owner) {
      const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, nonceBytes), {
        authTagLength: tagBytes,
      });
      decipher.setAAD(Buffer.from(owner)).setAuthTag(sealed.subarray(-tagBytes));
      return Buffer.concat([decipher.update(sealed.subarray(nonceBytes, -tagBytes)), decipher.final()]);
    },
  };
}

function computeMac({ derive }: Keyring, purpose: string, parts: string[]): Buffer {
  return createHmac('sha256', derive(`mac:${purpose}`))
    .update(JSON.stringify(parts))
    .digest();
}

function equalsCode(code: Uint8Array, expected: Buffer): boolean {
  return code.length === expected.length && timingSafeEqual(code, expected);
}

/** Bytes of a signing key: an HS512 key is at least as large as the hash (RFC 7518 §3.2). */
export const signingKeyBytes = 64;

/** The `owner` of each kind of secret, in one place, so that sealing and opening always use the same. */
export const owners = {
  signingKey: (tenantGuid: string, kid: string): string => `signing_key:${tenantGuid}:${kid}`,
  rolePassword: (tenantGuid: string): string => `role_password:${tenantGuid}`,
  serverUrl: (serverName: string): string => `server_url:${serverName}`,
  /** A data key of archives: of a tenant, or with `null` of the control database. */
  backupKey: (tenantGuid: string | null, fingerprint: string): string =>
    `backup_key:${tenantGuid ?? ''}:${fingerprint}`,
  /** The key that seals the secrets of a tenant's webhooks. */
  webhookKey: (tenantGuid: string): string => `webhook_key:${tenantGuid}`,
  /** The key that proves who has written an archive of a tenant. */
  archiveKey: (installationId: string): string => `archive_key:${installationId}`,
  canary: (installationId: string): string => `canary:${installationId}`,
};
