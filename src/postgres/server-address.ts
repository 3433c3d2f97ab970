import type { Queryable } from './shared-connection.ts';

/** Returns host and port of a URL's server; for a Unix socket, its folder and port. */
export function serverAddress(url: string): string {
  const { hostname, port, searchParams } = new URL(url);
  return `${searchParams.get('host') ?? hostname}:${searchParams.get('port') ?? (port || '5432')}`;
}

const ownOid = '(select oid from pg_database where datname = current_database())';

/**
 * Returns an SQL expression that identifies one database under one name, during one run of one server. Its value is the
 * same for every address and every session. The name alone does not suffice: another database may have it for a while.
 * @param name SQL for the name of the database; by default of the connected one
 * @param oid SQL for its OID
 */
export function sourceExpression(name = 'current_database()', oid = ownOid): string {
  return `concat(pg_postmaster_start_time() at time zone 'UTC', ' ', ${oid}, ' ', ${name})`;
}

/** Returns the one row of `readServerIdentity`. */
export const serverIdentitySql = `
  select concat(system_identifier, ':', current_setting('port')) as identity from pg_control_system()`;

/**
 * Reads which server a connection leads to: the identifier of its cluster, and its port. The result is the same for
 * every address of a server (`localhost` and `127.0.0.1`).
 */
export async function readServerIdentity(client: Queryable): Promise<string | undefined> {
  const { rows } = await client.query<{ identity: string }>(serverIdentitySql);
  return rows[0]?.identity;
}
