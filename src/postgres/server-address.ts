import type { Queryable } from './shared-connection.ts';

/** Returns host and port of a URL's server; for a Unix socket, its folder and port. */
export function serverAddress(url: string): string {
  const { hostname, port, searchParams } = new URL(url);
  return `${searchParams.get('host') ?? hostname}:${searchParams.get('port') ?? (port || '5432')}`;
}

/**
 * Returns an SQL expression that identifies one database under one name, during one run of one server. Its value is the
 * same for every address and every session. The name alone does not suffice: another database may have it for a while.
 * @param name SQL for the name of the database
 * @param oid SQL for its OID
 */
export function sourceExpression(name: string, oid: string): string {
  return `concat(pg_postmaster_start_time() at time zone 'UTC', '+00 ', ${oid}, ' ', ${name})`;
}

/**
 * The columns from which `ownSource` makes the source of the connected database, in a query of any of its tables. They
 * need few entries of the system catalogs: on a new connection, `sourceExpression` takes several times as long. The
 * session must have `timezone = UTC` and `datestyle = ISO`.
 */
export const ownSourceColumns = `pg_postmaster_start_time()::text as "startedAt", current_database() as database,
  pg_relation_filepath(tableoid) as path`;

export interface OwnSource {
  startedAt: string;
  database: string;
  /** `…/<OID of the database>/<file>` */
  path: string;
}

/**
 * Returns the value that `sourceExpression` has for the connected database. A session has the same one until it ends.
 */
export function ownSource({ startedAt, database, path }: OwnSource): string {
  return `${startedAt} ${databaseOfPath(path)} ${database}`;
}

/** Returns the OID of the database that a path of `pg_relation_filepath` leads to. */
function databaseOfPath(path: string): string | undefined {
  return path.split('/').at(-2);
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
