import { parsePostgresUrl } from '../config/postgres-url.ts';
import type { Queryable } from './shared-connection.ts';

/** Returns host and port of a URL's server; for a Unix socket, its folder and port. */
export function serverAddress(url: string): string {
  const { host, port = 5432 } = parsePostgresUrl(url);
  return `${host}:${port}`;
}

/** Returns the one row of `readServerIdentity`. */
export const serverIdentitySql = `
  select concat(system_identifier, ':', current_setting('port')) as identity from pg_control_system()`;

/**
 * Reads the identity of the server that a connection leads to: the identifier of its cluster,
 * and its port. The result is the same for every address of a server (`localhost` and
 * `127.0.0.1`).
 */
export async function readServerIdentity(client: Queryable): Promise<string | undefined> {
  const { rows } = await client.query<{ identity: string }>(serverIdentitySql);
  return rows[0]?.identity;
}
