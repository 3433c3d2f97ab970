import { createHash, randomBytes } from 'node:crypto';
import { hashName } from './directory-caches.ts';
import { tokenChecksum } from './token-checksum.ts';

const prefix = 'sbk_';
const secretBytes = 20;
/** Digits of base 32: five bits each. */
const secretLength = 32;
/** Characters that people see of a key, of which eight are of its secret. */
const shownLength = prefix.length + 8;

/** A new key of a program. Only its client has the key itself. */
export interface NewProgramKey {
  readonly key: string;
  /** SHA-256 of the key. */
  readonly hash: Buffer;
  /** The first characters, by which people recognise it; 120 of its random bits follow. */
  readonly prefix: string;
}

/**
 * Creates the key of a program: `sbk_`, 160 random bits in base 32 (RFC 4648 §7, in lower case),
 * and the CRC-32 of these in hexadecimal. `programKeyPattern` matches it.
 */
export function createProgramKey(): NewProgramKey {
  const number = BigInt(`0x${randomBytes(secretBytes).toString('hex')}`);
  const secret = number.toString(32).padStart(secretLength, '0');
  const key = `${prefix}${secret}${tokenChecksum(secret)}`;

  return { key, hash: sha256(key), prefix: key.slice(0, shownLength) };
}

/** The form of a key, for secret scanners too. */
export const programKeyPattern = 'sbk_[0-9a-v]{32}[0-9a-f]{8}';
const pattern = new RegExp(`^${programKeyPattern}$`);

/** Recognises the key of a program, valid or not, by its prefix. */
export function isProgramKey(token: string): boolean {
  return token.startsWith(prefix);
}

/**
 * Returns the name under which the directory finds a key; undefined when the text is malformed
 * or its checksum is wrong.
 */
export function programKeyName(key: string): string | undefined {
  const secret = key.slice(prefix.length, prefix.length + secretLength);
  if (!pattern.test(key) || !key.endsWith(tokenChecksum(secret))) return undefined;

  return hashName(sha256(key).toString('hex'));
}

function sha256(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}
