import { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { owners } from '../../control/secret-box.ts';
import { databaseUrl, serverAddressUrl } from '../../control/server-urls.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { connectFailure, postgresCause } from '../../lib/log/postgres-causes.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { readServerIdentity, serverAddress } from '../../lib/postgres/server-address.ts';
import { closedStamp } from '../databases/store/database-stamp.ts';
import { type StatedServer, storedIdentity } from '../registry/read-servers.ts';
import { readSchemaState } from '../schema/schema-steps.ts';
import { newDatabaseOptions } from '../schema/text-order.ts';
import { parseServerUrl } from './parse-server-url.ts';
import { requireUsableServer } from './usable-server.ts';

/**
 * Adds a server that tenants can be placed on, or changes the URL of the same server, such as
 * its password. What is stated about it then stays, unless it is stated anew.
 *
 * A server is known by what is in it, because its system identifier changes with `pg_upgrade`
 * and with a restore of a dump: it is the same one if its identifier is the stored one, if it
 * has the databases of all tenants that the control database places there, or if the URL has
 * the stored address. The identifier is stored anew each time.
 * @param urlText URL of any database on the server, with a login that may create databases and
 *   roles
 * @param stated what the operator states about it; without a capacity, it has no limit
 * @param isDryRun true to check the server and its name, and to change nothing
 * @returns true if the server was there already
 * @throws {OperatorError} when the server cannot be used, has another name already, or the name
 *   is that of another server
 */
export async function addServer(
  installation: Installation,
  name: string,
  urlText: string,
  { capacity, diskGb }: StatedServer,
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
  const known = await findKnown(installation, url, identity);
  const same = known.find(each => each.name === name);
  const other = known.find(each => each.name !== name);

  if (existing) {
    const isOther = other && (!same || other.missing === null);
    if (!existing.adminUrl || isOther) throw isAnother(name, other);
    if (!same) {
      throw isNotThis(name, existing.address ?? null, await countDatabases(installation, name));
    }
    if (same.missing !== null) throw isPart(name, same.missing);

    if (isDryRun) return true;
    em.assign(existing, {
      ...location,
      identity: identity ?? null,
      ...(capacity !== undefined && { capacity }),
      ...(diskGb !== undefined && { diskGb }),
    });
    await em.flush();
    return true;
  }

  if (other) throw isKnown(other);
  if (isDryRun) return false;

  const { prefix } = await em.findOneOrFail(Server, { name: 'default' });
  await em.insert(Server, {
    name,
    prefix,
    capacity: capacity ?? null,
    diskGb: diskGb ?? null,
    identity: identity ?? null,
    ...location,
  });
  return false;
}

/** A server of the installation. */
interface KnownServer {
  readonly name: string;
  /** True for the server of the control database. */
  readonly isDefault: boolean;
  /**
   * The database of a tenant of the server that the URL does not lead to, if only some others
   * show that it is the server; else null.
   */
  readonly missing: string | null;
}

/**
 * Returns the servers of the installation that a URL leads to: those with the identifier of its
 * cluster, also of a copy of it; else those whose tenants' databases it has; else those with its
 * address, and those of which it has some databases, as after the restore of one.
 */
async function findKnown(
  { statements }: Installation,
  url: string,
  identity: string | undefined,
): Promise<KnownServer[]> {
  const { rows: servers } = await statements.query<
    KnownServer & { address: string | null; cluster: string | null }
  >(
    `select name, on_control_server as "isDefault", null as missing, address,
            split_part(${storedIdentity('s')}, ':', 1) as cluster
       from servers s order by id`,
  );
  const cluster = identity?.split(':')[0];
  const ofCluster = servers.filter(each => cluster !== undefined && each.cluster === cluster);
  if (ofCluster.length > 0) return ofCluster;

  const contents = await findPlacedServers(statements, url);
  const whole = servers.filter(({ name }) => contents.get(name) === null);
  if (whole.length > 0) return whole;

  return servers.flatMap(each => {
    const isThere = each.address !== null && serverAddress(each.address) === serverAddress(url);
    if (isThere) return [each];

    const missing = contents.get(each.name);
    return missing === undefined ? [] : [{ ...each, missing }];
  });
}

/** Maximum databases that are opened to recognise a server, for each of its names. */
const maxOpened = 5;

/**
 * Returns the names of the servers on which the control database places tenants' databases that
 * the server of a URL has, by the random name of a database and its stamp; for each the name of
 * a database that serves a tenant and is not there, or null if all are.
 */
async function findPlacedServers(
  statements: Installation['statements'],
  url: string,
): Promise<Map<string, string | null>> {
  const { rows: placed } = await statements.query<{
    server: string;
    database: string;
    guid: string;
    isCurrent: boolean;
  }>(
    `select s.name as server, d.database_name as database, t.guid, d.state = 'current' as "isCurrent"
       from tenant_databases d join servers s on s.id = d.server_id join tenants t on t.id = d.tenant_id
      where d.state in ('current', 'filled', 'kept') order by d.state, d.id`,
  );
  const present = await withConnection(url, async client => {
    const { rows } = await client.query<{ name: string }>(
      'select datname as name from pg_database where datallowconn',
    );
    return new Set(rows.map(({ name }) => name));
  });

  const found = new Map<string, string | null>();
  for (const [server, databases] of Map.groupBy(placed, each => each.server)) {
    const there = databases.filter(({ database }) => present.has(database));
    const missing = databases.find(
      ({ database, isCurrent }) => isCurrent && !present.has(database),
    );

    for (const { database, guid } of there.slice(0, maxOpened)) {
      const state = await withConnection(databaseUrl(url, database), readSchemaState).catch(
        () => undefined,
      );
      if (state?.guid !== guid && state?.guid !== closedStamp(guid)) continue;

      found.set(server, missing?.database ?? null);
      break;
    }
  }

  return found;
}

async function countDatabases({ statements }: Installation, name: string): Promise<number> {
  const { rows } = await statements.query<{ count: number }>(
    `select count(*)::int as count from tenant_databases d join servers s on s.id = server_id
      where s.name = $1 and state <> 'gone'`,
    [name],
  );
  const [row] = rows;

  return row?.count ?? 0;
}

/** Returns the error of a server that the installation has under another name. */
function isKnown({ name, isDefault }: KnownServer): OperatorError {
  const remedy = isDefault ? '' : `. To change its URL: bin/backoffice server add ${name}`;
  return new OperatorError(
    `The URL leads to the server ${name}, or to a copy of it, which the installation has ` +
      `already${remedy}`,
  );
}

/** Returns the error of a name that is not that of the server of the URL. */
function isAnother(name: string, other: KnownServer | undefined): OperatorError {
  return other && other.name !== name
    ? isKnown(other)
    : new OperatorError(
        `There is a server ${name} already, and the URL is not one of it: give another name`,
      );
}

/** Returns the error of a URL that leads to a server which the installation does not know. */
function isNotThis(name: string, address: string | null, databases: number): OperatorError {
  const what = `There is a server ${name} already, and the URL is not one of it`;
  if (databases === 0) {
    return new OperatorError(
      `${what}. As no tenant has a database on ${name}, remove it, and add it anew: bin/backoffice server remove ${name}`,
    );
  }

  return new OperatorError(
    `${what}: its address is not ${address === null ? 'known' : serverAddress(address)}, and it has none of the ` +
      `${databases} databases of tenants of ${name}. Give another name, or a URL of the server that has these databases`,
  );
}

/** Returns the error of a URL that leads to a server with some databases of another one. */
function isPart(name: string, missing: string): OperatorError {
  return new OperatorError(
    `The URL leads to a server with some of the databases of tenants of ${name}, but it has no database ${missing}, ` +
      `whose tenant would get 503. Give a URL of the server that has all of them`,
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
