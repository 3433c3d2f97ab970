import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  hkdfSync,
  randomBytes,
  timingSafeEqual,
} from 'node:crypto';
import { OperatorError } from '../lib/log/operator-error.ts';

const nonceBytes = 12; // NIST SP 800-38D §5.2.1.1
const tagBytes = 16;
/** Characters of base64url, for 16 bytes. */
const fingerprintLength = 22;

/** Verifies the codes that the installation has computed. */
export interface MacVerifier {
  /**
   * Checks, in constant time, that a code was computed by either key, for this purpose and
   * these parts.
   */
  verifyMac(code: Uint8Array, purpose: string, ...parts: string[]): boolean;
}

/** Encrypts secrets at rest. */
interface Sealer {
  /**
   * Encrypts with AES-256-GCM. `owner` names the owner of the secret: moved to another owner, a
   * secret cannot be opened.
   */
  seal(secret: Uint8Array | string, owner: string): Buffer;
  /**
   * Decrypts.
   * @throws {Error} when the text was sealed with another master key or for another owner, or
   *   was changed
   */
  open(sealed: Uint8Array, owner: string): Buffer;
}

/**
 * One key: seals secrets and computes message authentication codes, with keys that are derived
 * from it.
 */
export class SealingKey implements Sealer {
  readonly #key: Uint8Array;
  readonly #sealing: Buffer;
  /**
   * The name of the key, which discloses nothing of it: 16 bytes that HKDF derives from the
   * key, in 22 characters. Each secret that the key seals begins with this name.
   */
  readonly fingerprint: string;

  /**
   * @param key 32 random bytes, from which the key of each purpose is derived (HKDF-SHA-256,
   *   RFC 5869)
   */
  constructor(key: Uint8Array) {
    this.#key = key;
    this.#sealing = this.derive('seal');
    this.fingerprint = this.derive('fingerprint').toString('base64url').slice(0, fingerprintLength);
  }

  seal(secret: Uint8Array | string, owner: string): Buffer {
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv('aes-256-gcm', this.#sealing, nonce, { authTagLength: tagBytes });
    cipher.setAAD(Buffer.from(owner));
    const encrypted = [cipher.update(secret), cipher.final(), cipher.getAuthTag()];
    return Buffer.concat([Buffer.from(this.fingerprint), nonce, ...encrypted]);
  }

  open(sealed: Uint8Array, owner: string): Buffer {
    if (fingerprintOf(sealed) !== this.fingerprint) {
      throw new Error('the secret was sealed under another key');
    }

    const encrypted = sealed.subarray(fingerprintLength);
    const nonce = encrypted.subarray(0, nonceBytes);
    const decipher = createDecipheriv('aes-256-gcm', this.#sealing, nonce, {
      authTagLength: tagBytes,
    });
    decipher.setAAD(Buffer.from(owner)).setAuthTag(encrypted.subarray(-tagBytes));
    return Buffer.concat([
      decipher.update(encrypted.subarray(nonceBytes, -tagBytes)),
      decipher.final(),
    ]);
  }

  /** HMAC-SHA-256, 32 bytes. Each purpose has its own key. */
  mac(purpose: string, ...parts: string[]): Buffer {
    return createHmac('sha256', this.derive(`mac:${purpose}`))
      .update(JSON.stringify(parts))
      .digest();
  }

  /** Returns a key of 32 bytes for a purpose. */
  derive(purpose: string): Buffer {
    return Buffer.from(hkdfSync('sha256', this.#key, '', purpose, 32));
  }
}

/** Returns the fingerprint of the key that sealed a secret. */
function fingerprintOf(sealed: Uint8Array): string {
  return Buffer.from(sealed.subarray(0, fingerprintLength)).toString('latin1');
}

/**
 * Neither `MASTER_KEY` nor `MASTER_KEY_PREVIOUS` is the master key of the control database. The
 * process can seal nothing; its requests that need the key get 503 `unavailable`.
 */
export class MasterKeyError extends OperatorError {
  override name = 'MasterKeyError';
  readonly code = 'MASTER_KEY';
}

/**
 * The two master keys of a process, `MASTER_KEY` and `MASTER_KEY_PREVIOUS`. It seals, and
 * computes codes, with the *present* one, which the control database names by its fingerprint
 * (`installation.key_fingerprint`). It opens secrets, and accepts codes, of both.
 */
export class SecretBox implements Sealer, MacVerifier {
  /** `MASTER_KEY` */
  readonly masterKey: SealingKey;
  /** `MASTER_KEY_PREVIOUS` */
  readonly previous: SealingKey | undefined;
  #present: string;

  /**
   * `MASTER_KEY` is the present key until `setPresent` names another one.
   * @param masterKey 32 random bytes, as for `SealingKey`
   */
  constructor(masterKey: Uint8Array, previous?: Uint8Array) {
    this.masterKey = new SealingKey(masterKey);
    this.previous = previous && new SealingKey(previous);
    this.#present = this.masterKey.fingerprint;
  }

  /**
   * Sets which of the keys is the present one.
   * @param fingerprint null: there is none yet, and the first one will be `MASTER_KEY`
   */
  setPresent(fingerprint: string | null): void {
    this.#present = fingerprint ?? this.masterKey.fingerprint;
  }

  /** False while neither key is the present one. */
  get isReady(): boolean {
    return this.#find(this.#present) !== undefined;
  }

  /**
   * The key that seals.
   * @throws {MasterKeyError} while neither key is the present one
   */
  get present(): SealingKey {
    const key = this.#find(this.#present);
    if (key) return key;
    throw new MasterKeyError(this.lack);
  }

  /**
   * The setting to change while neither key is the present one, as a sentence without its full
   * stop.
   */
  get lack(): string {
    const { masterKey, previous } = this;
    const remedy = `set MASTER_KEY to the key with the fingerprint ${this.#present}`;

    return previous
      ? 'Neither MASTER_KEY nor MASTER_KEY_PREVIOUS is the master key of this control database: ' +
          `${remedy} (they have ${masterKey.fingerprint} and ${previous.fingerprint})`
      : `MASTER_KEY is not the master key of this control database: ${remedy} (it has ${masterKey.fingerprint})`;
  }

  /**
   * Seals under the present key.
   * @throws {MasterKeyError} while neither key is the present one
   */
  seal(secret: Uint8Array | string, owner: string): Buffer {
    return this.present.seal(secret, owner);
  }

  open(sealed: Uint8Array, owner: string): Buffer {
    return (this.#find(fingerprintOf(sealed)) ?? this.present).open(sealed, owner);
  }

  /**
   * Computes a code with the present key, as `SealingKey` does.
   * @throws {MasterKeyError} while neither key is the present one
   */
  mac(purpose: string, ...parts: string[]): Buffer {
    return this.present.mac(purpose, ...parts);
  }

  verifyMac(code: Uint8Array, purpose: string, ...parts: string[]): boolean {
    return [this.masterKey, this.previous].some(
      key => key && equalsCode(code, key.mac(purpose, ...parts)),
    );
  }

  #find(fingerprint: string): SealingKey | undefined {
    return [this.masterKey, this.previous].find(key => key?.fingerprint === fingerprint);
  }
}

function equalsCode(code: Uint8Array, expected: Buffer): boolean {
  return code.length === expected.length && timingSafeEqual(code, expected);
}

/** Bytes of a signing key: an HS512 key is at least as large as the hash (RFC 7518 §3.2). */
export const signingKeyBytes = 64;

/**
 * The `owner` of each kind of secret, in one place, so that sealing and opening always use the
 * same.
 */
export const owners = {
  signingKey: (tenantGuid: string, kid: string): string => `signing_key:${tenantGuid}:${kid}`,
  rolePassword: (tenantGuid: string): string => `role_password:${tenantGuid}`,
  serverUrl: (serverName: string): string => `server_url:${serverName}`,
  /** The key that seals the secrets of a tenant's webhooks. */
  webhookKey: (tenantGuid: string): string => `webhook_key:${tenantGuid}`,
  /** The key of a program, in the stored result of a request with an `Idempotency-Key`. */
  programKey: (keyId: string): string => `program_key:${keyId}`,
  /** The key of an authenticator app. */
  factor: (tenantGuid: string, factorId: string): string => `factor:${tenantGuid}:${factorId}`,
  /**
   * The challenge of a passkey.
   * @param purpose what it is good for
   */
  passkeyChallenge: (tenantGuid: string, purpose: string): string =>
    `passkey_challenge:${tenantGuid}:${purpose}`,
  /** The key that proves who has written an archive of a tenant. */
  archiveKey: (installationId: string): string => `archive_key:${installationId}`,
  canary: (installationId: string): string => `canary:${installationId}`,
};
