import { createHash, randomBytes } from 'node:crypto';
import { tokenChecksum } from './token-checksum.ts';

const prefix = 'sbl_';

/**
 * Creates a legacy token: `sbl_`, 32 random bytes in base64url, and a checksum. The checksum
 * identifies a truncated or mistyped token without a look-up. Secret scanners find leaked
 * tokens by prefix and checksum. The database stores only the hash.
 */
export function createLegacyToken(): string {
  const secret = randomBytes(32).toString('base64url');
  return `${prefix}${secret}${tokenChecksum(secret)}`;
}

/** Recognises a legacy token, valid or not, by its prefix. */
export function isLegacyToken(token: string): boolean {
  return token.startsWith(prefix);
}

/**
 * Returns the SHA-256 of a token in hexadecimal; undefined when the token is malformed or its
 * checksum is wrong.
 */
export function hashOfLegacyToken(token: string): string | undefined {
  const [, secret, sum] = /^sbl_([\w-]{43})([0-9a-f]{8})$/.exec(token) ?? [];
  return secret && sum === tokenChecksum(secret)
    ? createHash('sha256').update(token).digest('hex')
    : undefined;
}
