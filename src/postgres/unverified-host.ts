import pg from 'pg';

/**
 * Returns the host of a URL of PostgreSQL if somebody on the way to it could read the connections, or answer in its
 * place: not for the loopback interface, a Unix socket, and TLS that checks the certificate and the name in it.
 * Connects to nothing. What counts is what the driver makes of the URL and of its environment variables; a URL that it
 * refuses, such as one with a missing `sslrootcert`, makes no connections.
 */
export function unverifiedHost(url: string): string | undefined {
  try {
    const { host, ssl } = new pg.Client({ connectionString: url });
    return isVerified(ssl) || isLocal(host) ? undefined : host;
  } catch {
    return undefined;
  }
}

/** As `unverifiedHost`, for a URL of Redis. */
export function unverifiedRedisHost(url: string): string | undefined {
  const { protocol, hostname } = new URL(url);
  return protocol === 'rediss:' || isLocal(hostname) ? undefined : hostname;
}

/** Returns what is wrong with a host that `unverifiedHost` returned, for operators. */
export function unverifiedText(host: string): string {
  return `connections to ${host} are not verified: somebody on the way could read them, or answer in its place`;
}

/** Without other options, TLS of Node checks the certificate and the name. */
function isVerified(tls: unknown): boolean {
  if (typeof tls !== 'object' || tls === null) return tls === true;
  return !('checkServerIdentity' in tls) && !('rejectUnauthorized' in tls && tls.rejectUnauthorized === false);
}

function isLocal(host: string): boolean {
  return /^(\/.*|localhost|127(\.\d+){3}|\[?::1\]?|)$/.test(host);
}
