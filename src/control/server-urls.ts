import type { Server } from './fleet-entities.ts';
import { owners, type SecretBox } from './secret-box.ts';

/** Where the servers that tenants are placed on are reached. */
export interface ServerUrls {
  /** A URL with the rights of the operator: creates databases and roles. */
  adminUrl(server: Pick<Server, 'name' | 'adminUrl'>): string;
}

/** @param controlUrl the control database; its server is the one that rows without a URL of their own mean */
export function createServerUrls(controlUrl: string, secrets: SecretBox): ServerUrls {
  return {
    adminUrl: server =>
      server.adminUrl ? secrets.open(server.adminUrl, owners.serverUrl(server.name)).toString() : controlUrl,
  };
}

/** The same server and the same settings (TLS …), another database, and optionally another login. */
export function databaseUrl(serverUrl: string, database: string, login?: { user: string; password: string }): string {
  const url = new URL(serverUrl);
  url.pathname = `/${encodeURIComponent(database)}`;
  if (login) {
    const { user, password } = login;
    // In the query a login would win over the one before the host, which has no place there when there is no host (a socket).
    const inQuery = url.hostname === '';
    for (const [name, value] of Object.entries({ user, password })) {
      if (inQuery) url.searchParams.set(name, value);
      else url.searchParams.delete(name);
    }
    url.username = encodeURIComponent(user);
    url.password = encodeURIComponent(password);
  }
  return url.href;
}
