import { readFileSync } from 'node:fs';
import type { ConnectionOptions } from 'node:tls';
import type { PostgresUrl } from '../config/postgres-url.ts';
import { projectPath } from '../config/project-path.ts';
import { codeOf } from '../narrow.ts';
import { PoolError } from './database-error.ts';

/**
 * Returns the TLS options of a connection; false: no TLS. Every mode but `disable` and
 * `no-verify` checks the certificate and the name in it. With `uselibpqcompat`, the modes have
 * the weaker meanings of libpq.
 * @throws {PoolError} when a file that the URL names, such as `sslrootcert`, cannot be read
 */
export function serverTls({
  parameters,
}: Pick<PostgresUrl, 'parameters'>): ConnectionOptions | false {
  const { sslmode: mode, sslcert: cert, sslkey: key, sslrootcert: root } = parameters;
  const isDirect = parameters.sslnegotiation === 'direct';
  if (mode === 'disable' || !(mode || cert || key || root || isDirect)) return false;

  const tls: ConnectionOptions = {};
  if (cert) tls.cert = readFile('sslcert', cert);
  if (key) tls.key = readFile('sslkey', key);
  if (root && root !== 'system') tls.ca = readFile('sslrootcert', root);

  const isLax = parameters.uselibpqcompat === 'true';
  if (mode === 'no-verify' || (isLax && (mode === 'prefer' || (mode === 'require' && !root)))) {
    tls.rejectUnauthorized = false;
  } else if (isLax && (mode === 'require' || mode === 'verify-ca')) {
    tls.checkServerIdentity = () => undefined;
  }
  return tls;
}

/**
 * @param parameter the parameter of the URL that names the file
 * @throws {PoolError} with a clause about the server as its message
 */
function readFile(parameter: string, path: string): string {
  const whole = projectPath(path);
  try {
    return readFileSync(whole, 'utf8');
  } catch (cause) {
    const code = codeOf(cause);
    const text = `its URL names ${shownPath(whole)} as ${parameter}, which cannot be read (${code})`;
    throw Object.assign(new PoolError('TLS_FILE', text), { cause });
  }
}

/** Returns a path as it is, but not the text of a key that somebody has given in its place. */
function shownPath(path: string): string {
  return /^[^\p{Cc}]{1,255}$/u.test(path) && !path.includes('-----')
    ? path
    : 'something that is no path';
}
