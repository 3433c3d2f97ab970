import type { ConnectionOptions } from 'node:tls';
import { parsePostgresUrl } from '../config/postgres-url.ts';
import { serverTls } from './server-tls.ts';

/**
 * Returns the host of a URL of PostgreSQL if somebody on the network could read the
 * connections, or answer in place of the host. Undefined for the loopback interface, a Unix
 * socket, and TLS that checks the certificate and the name in it. Connects to nothing. A URL
 * that is refused, such as one with a missing `sslrootcert`, makes no connections.
 */
export function unverifiedHost(url: string): string | undefined {
  try {
    const server = parsePostgresUrl(url);
    return isVerified(serverTls(server)) || isLocal(server.host) ? undefined : server.host;
  } catch {
    return undefined;
  }
}

/** Returns the `unverifiedHost` of a URL of Redis. */
export function unverifiedRedisHost(url: string): string | undefined {
  const { protocol, hostname } = new URL(url);
  return protocol === 'rediss:' || isLocal(hostname) ? undefined : hostname;
}

/** Returns the fault of a host that `unverifiedHost` returned, for operators. */
export function unverifiedText(host: string): string {
  return `connections to ${host} are not verified: somebody on the way could read them, or answer in its place`;
}

/** Without other options, TLS of Node checks the certificate and the name. */
function isVerified(tls: ConnectionOptions | false): boolean {
  return tls !== false && !tls.checkServerIdentity && tls.rejectUnauthorized !== false;
}

/**
 * Returns true for the name of this machine's loopback interface, its addresses, and a Unix
 * socket.
 */
export function isLocal(host: string): boolean {
  return /^(\/.*|localhost|127(\.\d+){3}|\[?::1\]?|)$/.test(host);
}
