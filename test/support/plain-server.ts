import { randomBytes } from 'node:crypto';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { startOwnServer } from './own-server.ts';
import { quickSettings } from './test-server.ts';

/** A PostgreSQL server as `initdb` leaves it, with one more login. */
export interface PlainServer {
  /** The URL of a database with that login. */
  url(database: string): string;
  /** The same, as superuser. */
  superuserUrl(database: string): string;
  /** Runs SQL as superuser in the database `postgres`. */
  sql<Row extends object>(text: string): Promise<Row[]>;
  /** Returns what the server has logged. */
  log(): Promise<string>;
  close(): Promise<void>;
}

/**
 * Starts a server, and takes back what the embedded PostgreSQL changes of a new one.
 * @param attributes of the login `operator`, such as `createdb createrole`
 * @param settings further settings of the server, `name=value`
 */
export async function createPlainServer(
  attributes: string,
  settings: readonly string[] = [],
): Promise<PlainServer> {
  // Two of them are servers of one installation, which are told apart by their system
  // identifiers.
  const server = await startOwnServer('plain', [...quickSettings, 'autovacuum=off', ...settings], {
    isNew: true,
  });
  const password = randomBytes(18).toString('base64url');
  const sql = <Row extends object>(text: string): Promise<Row[]> =>
    withConnection(server.url, async client => (await client.query(text)).rows as Row[]);
  await sql(`update pg_database set datacl = null where datname = 'postgres';
             grant connect on database template1 to public;
             create role operator login ${attributes} password '${password}'`);
  await sql('alter system reset archive_command');
  await sql('select pg_reload_conf()');
  return {
    url: database => databaseUrl(server.url, database, { user: 'operator', password }),
    superuserUrl: database => databaseUrl(server.url, database),
    sql,
    log: server.log,
    close: server.close,
  };
}
