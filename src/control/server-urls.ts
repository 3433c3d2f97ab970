import { formatPostgresUrl, parsePostgresUrl } from '../lib/config/postgres-url.ts';
import type { Server } from './control-entities.ts';
import { owners, type SecretBox } from './secret-box.ts';

/** The connection URLs of the PostgreSQL servers that hold tenant databases. */
export type ServerUrls = ReturnType<typeof createServerUrls>;

/**
 * @param controlUrl URL of the control database, returned for a server without a URL of its own
 */
export function createServerUrls(controlUrl: string, secrets: SecretBox) {
  return {
    /**
     * Returns a URL with the operator's rights, which can create databases and roles.
     * @param database by default the one that the stored URL names
     * @throws when the stored URL cannot be decrypted or parsed
     */
    adminUrl: (
      { name, adminUrl }: Pick<Server, 'name' | 'adminUrl'>,
      database?: string,
    ): string => {
      const url = adminUrl ? secrets.open(adminUrl, owners.serverUrl(name)).toString() : controlUrl;
      return database === undefined ? url : databaseUrl(url, database);
    },
  };
}

/** Returns a URL without its login: the server and the settings (TLS …). */
export function serverAddressUrl(serverUrl: string): string {
  return formatPostgresUrl({
    ...parsePostgresUrl(serverUrl),
    user: undefined,
    password: undefined,
  });
}

/** Returns the name of the database of a URL. */
export function databaseNameOf(url: string): string {
  return parsePostgresUrl(url).database;
}

/**
 * Returns a URL with the same server and settings (TLS …), another database and, if given,
 * another login.
 */
export function databaseUrl(
  serverUrl: string,
  database: string,
  login?: { user: string; password: string },
): string {
  return formatPostgresUrl({ ...parsePostgresUrl(serverUrl), ...login, database });
}
