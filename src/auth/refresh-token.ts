import type { SecretBox } from '../control/secret-box.ts';

/**
 * A refresh token names its session and its generation, and proves both with a message authentication code under a key
 * derived from the master key. Nothing of it is stored; the session row holds the number of the good generation. So the
 * successor of a token can be told again when a reply was lost, and a token of any older generation is recognised.
 */
export interface RefreshToken {
  readonly sessionId: string;
  readonly generation: number;
}

const purpose = 'refresh_token';
const idBytes = 16;
const generationBytes = 4;
const macBytes = 32;

/** 70 characters of base64url: session id, generation, code. */
export function encodeRefreshToken(
  { sessionId, generation }: RefreshToken,
  tenantGuid: string,
  secrets: SecretBox,
): string {
  const head = Buffer.alloc(idBytes + generationBytes);
  head.write(sessionId.replaceAll('-', ''), 'hex');
  head.writeUInt32BE(generation, idBytes);
  return Buffer.concat([head, secrets.mac(purpose, tenantGuid, sessionId, String(generation))]).toString('base64url');
}

/** Undefined when the token was not issued by us for this tenant. */
export function decodeRefreshToken(token: string, tenantGuid: string, secrets: SecretBox): RefreshToken | undefined {
  const bytes = Buffer.from(token, 'base64url');
  if (bytes.length !== idBytes + generationBytes + macBytes || bytes.toString('base64url') !== token) return undefined;
  const sessionId = bytes.toString('hex', 0, idBytes).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
  const generation = bytes.readUInt32BE(idBytes);
  const good = secrets.verifyMac(bytes.subarray(-macBytes), purpose, tenantGuid, sessionId, String(generation));
  return good ? { sessionId, generation } : undefined;
}
