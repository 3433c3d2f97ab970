import { createHash, createHmac, pbkdf2Sync, randomBytes } from 'node:crypto';

const saltBytes = 16;
const hashBytes = 32;

/**
 * Returns the verifier that PostgreSQL stores for a password (SCRAM-SHA-256: RFC 5802 §3, RFC 7677). Sent in place of
 * the password, it keeps the password out of the server's log, which holds whole statements (`log_statement`, errors).
 * Nobody can log in with a verifier.
 * @param password ASCII: SASLprep (RFC 4013) is not applied
 * @param iterations of PBKDF2. Each login costs the server that many hashes; only a password that can be guessed needs
 *   many
 */
export function scramVerifier(password: string, iterations: number, salt: Buffer = randomBytes(saltBytes)): string {
  const salted = pbkdf2Sync(password, salt, iterations, hashBytes, 'sha256');
  const hmac = (key: string) => createHmac('sha256', salted).update(key).digest();
  const storedKey = createHash('sha256').update(hmac('Client Key')).digest('base64');
  const serverKey = hmac('Server Key').toString('base64');
  return `SCRAM-SHA-256$${iterations}:${salt.toString('base64')}$${storedKey}:${serverKey}`;
}
