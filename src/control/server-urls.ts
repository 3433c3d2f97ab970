import type { Server } from './control-entities.ts';
import { owners, type SecretBox } from './secret-box.ts';

/** The connection URLs of the PostgreSQL servers that hold tenant databases. */
export type ServerUrls = ReturnType<typeof createServerUrls>;

/** @param controlUrl URL of the control database, returned for a server without a URL of its own */
export function createServerUrls(controlUrl: string, secrets: SecretBox) {
  return {
    /**
     * Returns a URL with the operator's rights, which can create databases and roles.
     * @param database by default the one that the stored URL names
     * @throws when the stored URL cannot be decrypted or parsed
     */
    adminUrl: ({ name, adminUrl }: Pick<Server, 'name' | 'adminUrl'>, database?: string): string => {
      const url = adminUrl ? secrets.open(adminUrl, owners.serverUrl(name)).toString() : controlUrl;
      if (!URL.canParse(url)) throw new Error(`the stored URL of server ${name} is not a URL`);
      return database === undefined ? url : databaseUrl(url, database);
    },
  };
}

/** Returns a URL without its login: the server and the settings (TLS …). */
export function serverAddressUrl(serverUrl: string): string {
  const url = new URL(serverUrl);
  for (const name of ['user', 'password']) url.searchParams.delete(name);
  url.username = '';
  url.password = '';
  return url.href;
}

/** Returns the name of the database of a URL. */
export function databaseNameOf(url: string): string {
  return decodeURIComponent(new URL(url).pathname.slice(1));
}

/** Returns a URL with the same server and settings (TLS …), another database and, if given, another login. */
export function databaseUrl(serverUrl: string, database: string, login?: { user: string; password: string }): string {
  const url = new URL(serverUrl);
  url.pathname = `/${encodeURIComponent(database)}`;
  if (login) {
    const { user, password } = login;
    // A login in the query takes precedence over one before the host. A URL without a host (a socket) can hold a login
    // only in the query.
    const useQuery = url.hostname === '';
    for (const [name, value] of Object.entries({ user, password })) {
      if (useQuery) url.searchParams.set(name, value);
      else url.searchParams.delete(name);
    }
    url.username = encodeURIComponent(user);
    url.password = encodeURIComponent(password);
  }
  return url.href;
}
