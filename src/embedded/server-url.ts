import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { OperatorError } from '../log/operator-error.ts';
import { findServer } from './pid-file.ts';

// Separate from the module that starts a server: completion only needs the URL, and the shell waits for it.

/** The role that owns the cluster. */
export const superuser = 'postgres';
/** The `cluster_name` of an embedded server, which distinguishes it from others. */
export const embeddedCluster = 'embedded by backoffice';
/** The file in the data folder that holds the password of the superuser. */
export const passwordFile = 'superuser.password';

/** Returns the URL of the superuser on the server's own database `postgres`. */
export function serverUrl(port: number, password: string): string {
  return `postgresql://${superuser}:${password}@127.0.0.1:${port}/postgres`;
}

/**
 * Returns the URL of the control database on the server that runs on this folder.
 * @throws when none runs
 */
export async function runningEmbeddedUrl(folder: string): Promise<string> {
  const data = join(folder, 'postgres');
  const server = await findServer(data).catch(() => undefined);
  if (!server) throw new OperatorError('no embedded PostgreSQL is running: start the service, or set DATABASE_URL');
  return embeddedControlUrl(serverUrl(server.port, await readFile(join(data, passwordFile), 'utf8')));
}

/** Returns the URL of the control database on an embedded server. */
export function embeddedControlUrl(url: string): string {
  const controlUrl = new URL(url);
  controlUrl.pathname = '/backoffice';
  return controlUrl.href;
}
