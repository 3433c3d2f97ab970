import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto';
import { LRUCache } from 'lru-cache';

const saltBytes = 16;
const hashBytes = 32;

/**
 * Returns the verifier that PostgreSQL stores for a password (SCRAM-SHA-256: RFC 5802 §3, RFC
 * 7677). Sent in place of the password, it keeps the password out of the server's log, which
 * holds whole statements (`log_statement`, errors). Nobody can log in with a verifier.
 * @param password ASCII: SASLprep (RFC 4013) is not applied
 * @param iterations of PBKDF2. Each login costs the server that many hashes; only a password
 *   that can be guessed needs many
 */
export function scramVerifier(
  password: string,
  iterations: number,
  salt: Buffer = randomBytes(saltBytes),
): string {
  const { storedKey, serverKey } = scramKeys(password, salt, iterations);
  const stored = storedKey.toString('base64');
  return `SCRAM-SHA-256$${iterations}:${salt.toString('base64')}$${stored}:${serverKey.toString('base64')}`;
}

/**
 * The last message of a client's login, and the signature with which the server proves that it
 * knows the verifier.
 */
interface ScramProof {
  readonly response: string;
  readonly serverSignature: string;
}

const serverFirstMessage = /^r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/]+={0,2}),i=([1-9]\d{0,3})$/;
/**
 * The default of PostgreSQL. The keys of a verifier with more would block the event loop for
 * more than some ms.
 */
const maxIterations = 4_096;
/**
 * The keys of the latest logins: RFC 5802 lets a client keep them, because a server sends the
 * same salt until the password changes. To compute them costs half a millisecond, which a
 * command that opens many databases pays once.
 */
const knownKeys = new LRUCache<string, ScramKeys>({ max: 100 });

/**
 * Proves to the server that the client knows the password, without channel binding (RFC 5802
 * §3).
 * @param clientNonce of the client's first message, whose user is `*`
 * @param serverFirst the server's first message
 * @returns undefined if the verifier has too many iterations, the password is not ASCII, or the
 *   message is malformed
 */
export function scramProof(
  password: string,
  clientNonce: string,
  serverFirst: string,
): ScramProof | undefined {
  const [, nonce = '', salt = '', iterations = ''] = serverFirstMessage.exec(serverFirst) ?? [];
  if (!/^[\x21-\x7e]+$/.test(password) || !nonce.startsWith(clientNonce) || nonce === clientNonce) {
    return undefined;
  }
  if (Number(iterations) > maxIterations) return undefined;

  const { clientKey, storedKey, serverKey } = keysOf(password, salt, iterations);
  const withoutProof = `c=biws,r=${nonce}`;
  const message = `n=*,r=${clientNonce},${serverFirst},${withoutProof}`;
  const signature = hmac(storedKey, message);
  const proof = clientKey.map((byte, index) => byte ^ signature[index]!);

  return {
    response: `${withoutProof},p=${Buffer.from(proof).toString('base64')}`,
    serverSignature: hmac(serverKey, message).toString('base64'),
  };
}

interface ScramKeys {
  readonly clientKey: Buffer;
  readonly storedKey: Buffer;
  readonly serverKey: Buffer;
}

function keysOf(password: string, salt: string, iterations: string): ScramKeys {
  const verifier = `${iterations} ${salt} ${password}`;
  let keys = knownKeys.get(verifier);
  if (!keys) {
    keys = scramKeys(password, Buffer.from(salt, 'base64'), Number(iterations));
    knownKeys.set(verifier, keys);
  }
  return keys;
}

function scramKeys(password: string, salt: Buffer, iterations: number): ScramKeys {
  const salted = pbkdf2Sync(password, salt, iterations, hashBytes, 'sha256');
  const clientKey = hmac(salted, 'Client Key');
  const storedKey = createHash('sha256').update(clientKey).digest();
  return { clientKey, storedKey, serverKey: hmac(salted, 'Server Key') };
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}
