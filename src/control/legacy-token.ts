import { createHash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

const prefix = 'sbl_';

/**
 * A token of an old client: `sbl_`, 32 random bytes, and a checksum by which a token that was cut off or mistyped is known
 * without a look-up (and found by scanners of repositories). Only its hash is kept.
 */
export function createLegacyToken(): string {
  const secret = randomBytes(32).toString('base64url');
  return `${prefix}${secret}${checksum(secret)}`;
}

/** Whether it looks like a legacy token, good or not. */
export function isLegacyToken(token: string): boolean {
  return token.startsWith(prefix);
}

/** SHA-256 in hexadecimal; undefined when the checksum is wrong. */
export function hashOfLegacyToken(token: string): string | undefined {
  const [, secret, sum] = /^sbl_([\w-]{43})([0-9a-f]{8})$/.exec(token) ?? [];
  return secret && sum === checksum(secret) ? createHash('sha256').update(token).digest('hex') : undefined;
}

function checksum(secret: string): string {
  return crc32(secret).toString(16).padStart(8, '0');
}
