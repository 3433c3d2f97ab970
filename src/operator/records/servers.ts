import { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { owners } from '../../control/secret-box.ts';
import { serverAddressUrl } from '../../control/server-urls.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { connectFailure, postgresCause } from '../../lib/log/postgres-causes.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { readServerIdentity } from '../../lib/postgres/server-address.ts';
import { parseServerUrl } from './parse-server-url.ts';
import { listServers, noSuchServer, roomiest, storedIdentity } from './read-servers.ts';
import { newDatabaseOptions } from './text-order.ts';
import { requireUsableServer } from './usable-server.ts';

/**
 * Adds a server that tenants can be placed on, or changes the URL of the same server, such as
 * its password. Its capacity then stays, unless one is given.
 * @param urlText URL of any database on the server, with a login that may create databases and
 *   roles
 * @param capacity maximum number of tenants that are placed there automatically; null for no
 *   limit
 * @param isDryRun true to check the server and its name, and to change nothing
 * @returns true if the server was there already
 * @throws {OperatorError} when the server cannot be used, has another name already, or the name
 *   is that of another server
 */
export async function addServer(
  installation: Installation,
  name: string,
  urlText: string,
  capacity: number | null,
  isDryRun = false,
): Promise<boolean> {
  const { control, secrets } = installation;

  if (!/^[a-z][a-z0-9-]{0,30}$/.test(name)) {
    throw new OperatorError(
      'The name of a server consists of up to 31 lower-case letters, digits and hyphens, ' +
        'beginning with a letter',
      { usage: true },
    );
  }

  const url = parseServerUrl(urlText);
  const identity = await requireUsable(name, url).catch(cause => {
    const reason = connectFailure(cause);
    const known = postgresCause(cause);
    if (reason === undefined || known === undefined) throw cause;

    const remedy = `${known.step}. Then run again: bin/backoffice server add ${name}`;
    throw new OperatorError(`The server ${name} cannot be used: ${reason}. ${remedy}`, {
      cause,
    });
  });

  const em = (await control()).em.fork();
  const location = {
    adminUrl: secrets.seal(url, owners.serverUrl(name)),
    address: serverAddressUrl(url),
  };

  const existing = await em.findOne(Server, { name });
  if (existing) {
    if (!existing.adminUrl || !identity || clusterOf(existing.identity) !== clusterOf(identity)) {
      throw new OperatorError(
        `There is a server ${name} already, and the URL is not one of it: give another name`,
      );
    }

    if (isDryRun) return true;
    em.assign(existing, { ...location, identity, ...(capacity !== null && { capacity }) });
    await em.flush();
    return true;
  }

  await requireUnknown(installation, identity);
  if (isDryRun) return false;

  const { prefix } = await em.findOneOrFail(Server, { name: 'default' });
  await em.insert(Server, {
    name,
    prefix,
    capacity,
    identity,
    ...location,
  });
  return false;
}

/** Returns the part of an identity that stays when a server moves to another port. */
function clusterOf(identity: string | null | undefined): string | null {
  return identity?.split(':')[0] ?? null;
}

/**
 * Requires that a server has no other name: under another one, its databases would seem to
 * belong to nobody.
 * @throws {OperatorError} when the server, or the one whose copy it is, has a name already
 */
async function requireUnknown(
  { statements }: Installation,
  identity: string | undefined,
): Promise<void> {
  const [found] = await statements.execute<{ name: string; isDefault: boolean }[]>(
    `select name, on_control_server as "isDefault" from servers s
      where split_part(${storedIdentity('s')}, ':', 1) = ? limit 1`,
    [clusterOf(identity)],
  );
  if (!found) return;

  const { name, isDefault } = found;
  const remedy = isDefault ? '' : `. To change its URL: bin/backoffice server add ${name}`;
  throw new OperatorError(
    `The URL leads to the server ${name}, or to a copy of it, which the installation has ` +
      `already${remedy}`,
  );
}

/**
 * @returns the identity of the server
 * @throws {OperatorError} when tenants cannot be placed on it
 */
async function requireUsable(name: string, url: string): Promise<string | undefined> {
  return withConnection(url, async client => {
    const subject = `The server ${name}`;
    await requireUsableServer(client, { subject, url, isOperator: true, isControl: false });
    await newDatabaseOptions(client); // throws when databases of tenants cannot be made there
    return readServerIdentity(client);
  });
}

/** @throws {OperatorError} when there is no server with this name */
export async function findServer({ control }: Installation, name: string): Promise<Server> {
  const { em } = await control();
  const server = await em.fork().findOne(Server, { name });
  if (!server) throw noSuchServer(name);
  return server;
}

/**
 * Chooses the server of a new tenant: the named one, otherwise the one with the most room.
 * @throws {OperatorError} when there is no server with this name, or none has room
 */
export async function placeTenant(
  installation: Installation,
  name: string | undefined,
): Promise<Server> {
  const em = (await installation.control()).em.fork();
  if (name !== undefined) return findServer(installation, name);
  const best = roomiest(await listServers(installation));
  if (!best) {
    throw new OperatorError(
      'No server has room for another tenant. Add one: bin/backoffice server add <name> < ' +
        'url-file. Or raise a capacity: bin/backoffice server set <name> --capacity <n>',
    );
  }
  return em.findOneOrFail(Server, { name: best.name });
}
