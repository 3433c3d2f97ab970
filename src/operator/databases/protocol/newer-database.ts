import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import { Server } from '../../../control/control-entities.ts';
import { owners } from '../../../control/secret-box.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { sqlState } from '../../../lib/postgres/database-error.ts';
import { quoteIdentifier as quote, quoteLiteral } from '../../../lib/postgres/quote.ts';
import { within } from '../../../lib/runtime/within.ts';
import { closedStamp } from '../store/database-stamp.ts';
import {
  type DatabaseAddress,
  readCurrent,
  readDatabases,
  type TenantDatabase,
} from '../store/database-store.ts';
import { tenantVerifier } from './create-database.ts';
import type { RunContext } from './run-databases.ts';

/** A database that the tenant has, while the control database names a former one. */
export interface NewerDatabase {
  /** The name of its server. */
  readonly server: string;
  readonly database: string;
  /** True if the database lets the tenant in; false also if it could not be read. */
  readonly isOpen: boolean;
  /** The row of the control database; undefined: it does not know the database. */
  readonly known: TenantDatabase | undefined;
  /** The database that the control database names. */
  readonly former: TenantDatabase;
  /** True if the server of the former one has lost it. */
  readonly isFormerLost: boolean;
}

/** The stamp of a database, and its successor; null: the database is lost. */
interface Stamp {
  readonly guid: string;
  readonly schemaVersion: string | null;
  readonly compatibleFrom: string | null;
  readonly successor: string | null;
}

/** The origin of a newer database, in words. */
export const newerOrigin = 'a later time than that of the control database';

/** Maximum time to read the stamp of another database, in ms. */
const maxLookMs = 2_000;
/** Maximum lost exchanges that are followed. */
const maxExchanges = 20;

/**
 * Finds the database that a tenant has, if the control database names a former one, because it
 * lost its last commits, as a promoted standby or a restored archive has. If the database that
 * it names is closed or lost, there are two signs of a newer one: the closed one records its
 * successor (`nameSuccessor`), or another database that the control database knows lets the
 * tenant in.
 *
 * Where no successor was recorded, a server that does not respond is skipped, so that the
 * tenant is served again also while another server is away.
 */
export async function findNewer({
  installation,
  control,
  tenant: { id, guid },
}: RunContext): Promise<NewerDatabase | undefined> {
  const former = await readCurrent(control, id);
  if (!former) return undefined;
  const own = await look(installation, former);
  if (own === undefined || (own !== null && own.guid !== closedStamp(guid))) return undefined;

  const all = await readDatabases(control, id, ['reserved', 'filled', 'kept', 'condemned']);
  const facts = { former, isFormerLost: own === null };

  if (own !== null && own.successor !== null) {
    const { server, database, stamp } = await follow({ installation, control }, own.successor);
    const known = all.find(each => each.database === database);
    return { ...facts, server, database, known, isOpen: stamp?.guid === guid };
  }

  const stamps = await Promise.all(all.map(each => look(installation, each)));
  const known = all.find((_, index) => stamps[index]?.guid === guid);
  if (!known) return undefined;

  const { server, database } = known;
  return { ...facts, server: server.name, database, known, isOpen: true };
}

/**
 * Checks that the control database names the database that a tenant has.
 * @throws {OperatorError} when it names a former one, with the command that puts the newer one
 *   in place; from then on no command drops the newer one
 */
export async function requireNoneNewer(context: RunContext): Promise<void> {
  const newer = await findNewer(context);
  if (!newer) return;

  if (newer.known) await keep(context.control, newer.known.id);
  throw newerError(context.tenant.slug, newer);
}

/** Keeps every command from dropping a database until an operator decides about it. */
async function keep(control: pg.Client, id: number): Promise<void> {
  await control.query(
    `update tenant_databases set state = 'kept', kept_by = 'back', keep_until = null
      where id = $1 and (state in ('reserved', 'condemned') or kept_by = 'move')`,
    [id],
  );
}

/** Returns the error of a command that would serve or replace a former database. */
export function newerError(slug: string, newer: NewerDatabase): OperatorError {
  const { server, database, known, former, isFormerLost } = newer;
  const put = (kind: 'swap' | 'back', name: string): string =>
    `bin/backoffice restore ${kind} ${slug} --database ${name}`;
  const state = isFormerLost ? 'lost' : 'closed';
  const otherwise = isFormerLost
    ? ''
    : `. Only if it is gone for ever, serve the former data: ${put('swap', former.database)}`;

  return new OperatorError(
    `${database} of ${slug} may have newer data, on server ${server}, than its current one, which is ${state}: the ` +
      'control database is of an earlier time. Put it in place: ' +
      put(known?.keptBy === 'swap' ? 'back' : 'swap', database) +
      otherwise,
  );
}

/**
 * Records a newer database in the control database, with the schema that it has, as one that
 * can be put in place. Gives its login role another password if the control database does not
 * know the one that it has.
 * @returns it
 * @throws {OperatorError} when its server does not have it, or it is that of another tenant
 */
export async function recordNewer(
  { installation, control, tenant }: RunContext,
  newer: NewerDatabase,
): Promise<TenantDatabase> {
  const { secrets, servers } = installation;
  const server = newer.known?.server ?? (await requireServer(installation, newer));
  const url = servers.adminUrl(server, newer.database);
  const stamp = await withConnection(url, readStamp);
  if (![tenant.guid, closedStamp(tenant.guid)].includes(stamp?.guid ?? '')) {
    throw new OperatorError(
      `Database ${newer.database} on server ${server.name} is not one of ${tenant.slug}: nothing was changed`,
    );
  }

  if (newer.known) await keep(control, newer.known.id);
  else {
    const password = randomBytes(24).toString('base64url');
    await withConnection(url, client =>
      client.query(
        `alter role ${quote(newer.database)} password ${quoteLiteral(tenantVerifier(password))}`,
      ),
    );
    await control.query(
      `insert into tenant_databases
              (tenant_id, server_id, database_name, role_name, role_password, state, origin, kept_by)
       values ($1, $2, $3, $3, $4, 'kept', $5, 'back')`,
      [
        tenant.id,
        server.id,
        newer.database,
        secrets.seal(password, owners.rolePassword(tenant.guid)),
        newerOrigin,
      ],
    );
  }
  await control.query(
    `update tenant_databases set schema_version = $3, compatible_from = $4, schema_fingerprint = null
      where tenant_id = $1 and database_name = $2 and state in ('filled', 'kept')`,
    [tenant.id, newer.database, stamp?.schemaVersion, stamp?.compatibleFrom],
  );

  const all = await readDatabases(control, tenant.id, ['filled', 'kept']);
  const found = all.find(({ database }) => database === newer.database);
  if (!found) throw new Error(`database ${newer.database} is not recorded`);

  return found;
}

/** Returns the address of a newer database; undefined if its server is not known. */
export async function addressOf(
  { control }: Pick<RunContext, 'control'>,
  { known, server, database }: NewerDatabase,
): Promise<DatabaseAddress | undefined> {
  const found = known?.server ?? (await readServer(control, server));
  return found && { server: found, database };
}

/** Follows the successors of a database, to the last one. */
async function follow(
  { installation, control }: Pick<RunContext, 'installation' | 'control'>,
  first: string,
): Promise<{ server: string; database: string; stamp: Stamp | null | undefined }> {
  let place = first;
  for (let count = 1; ; count++) {
    const [server = '', database = ''] = place.split('/');
    const row = await readServer(control, server);
    const stamp = row && (await look(installation, { server: row, database }));
    if (!stamp || stamp.successor === null || count === maxExchanges) {
      return { server, database, stamp };
    }
    place = stamp.successor;
  }
}

async function readServer(control: pg.Client, name: string): Promise<Server | undefined> {
  const { rows } = await control.query<Server>(
    'select id, name, prefix, admin_url as "adminUrl" from servers where name = $1',
    [name],
  );

  return rows[0];
}

async function requireServer(
  { control }: RunContext['installation'],
  { server: name, database }: NewerDatabase,
): Promise<Server> {
  const server = await (await control()).em.fork().findOne(Server, { name });
  if (server) return server;

  throw new OperatorError(
    `Server ${name}, which has ${database}, is not known. Add it: bin/backoffice server add ${name}`,
  );
}

/**
 * @returns null for a database that is lost or has no stamp; undefined: it could not be read
 */
function look(
  { servers }: RunContext['installation'],
  { server, database }: Pick<TenantDatabase, 'server' | 'database'>,
): Promise<Stamp | null | undefined> {
  const read = withConnection(servers.adminUrl(server, database), readStamp).catch(error => {
    if (['3D000', '55000'].includes(sqlState(error) ?? '')) return null;
    throw error;
  });

  return within(read, maxLookMs).catch(() => undefined);
}

async function readStamp(client: pg.Client): Promise<Stamp | null> {
  const { rows } = await client
    .query<Stamp>(
      `select guid, schema_version as "schemaVersion", compatible_from as "compatibleFrom", replaced_by as successor
         from tenant_identity`,
    )
    .catch(error => {
      if (sqlState(error) === '42P01') return { rows: [] };
      throw error;
    });

  return rows[0] ?? null;
}
