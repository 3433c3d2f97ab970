import { crc32 } from 'node:zlib';

/**
 * Returns the checksum at the end of a token: its CRC-32 in eight hexadecimal digits. It
 * identifies a truncated or mistyped token without a look-up, and tells secret scanners that a
 * text is a token.
 */
export function tokenChecksum(secret: string): string {
  return crc32(secret).toString(16).padStart(8, '0');
}
