import type { SecretBox } from '../../control/secret-box.ts';

/**
 * A refresh token contains its session and its generation, and a message authentication code of
 * both under a key derived from the master key. The token itself is not stored; the session row
 * contains the number of the valid generation. So the service can issue the same successor
 * again if a response was lost, and recognises a token of any older generation.
 */
export interface RefreshToken {
  readonly sessionId: string;
  readonly generation: number;
}

const purpose = 'refresh_token';
const idBytes = 16;
const generationBytes = 4;
const macBytes = 32;

/** Encodes a refresh token: 70 characters of base64url with session id, generation and code. */
export function encodeRefreshToken(
  { sessionId, generation }: RefreshToken,
  tenantGuid: string,
  secrets: SecretBox,
): string {
  const prefix = Buffer.alloc(idBytes + generationBytes);
  prefix.write(sessionId.replaceAll('-', ''), 'hex');
  prefix.writeUInt32BE(generation, idBytes);
  return Buffer.concat([
    prefix,
    secrets.mac(purpose, tenantGuid, sessionId, String(generation)),
  ]).toString('base64url');
}

/** Decodes a refresh token. Returns undefined unless this service issued it for this tenant. */
export function decodeRefreshToken(
  token: string,
  tenantGuid: string,
  secrets: SecretBox,
): RefreshToken | undefined {
  const bytes = Buffer.from(token, 'base64url');
  if (
    bytes.length !== idBytes + generationBytes + macBytes ||
    bytes.toString('base64url') !== token
  ) {
    return undefined;
  }

  const sessionId = bytes
    .toString('hex', 0, idBytes)
    .replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
  const generation = bytes.readUInt32BE(idBytes);
  const valid = secrets.verifyMac(
    bytes.subarray(-macBytes),
    purpose,
    tenantGuid,
    sessionId,
    String(generation),
  );

  return valid ? { sessionId, generation } : undefined;
}
