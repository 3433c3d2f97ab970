import type pg from 'pg';
import type { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { lockSpaces, withLock } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { isoTime } from '../../postgres/iso-time.ts';
import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { type Queryable, shareConnection } from '../../postgres/shared-connection.ts';
import { fleetTasks } from '../command/fleet-tasks.ts';
import { runConcurrently } from '../command/run-fleet.ts';
import { errorText } from '../command/texts.ts';
import { dropOldTemplates, ensureTemplate, migrationsDigest, tenantGroup } from '../schema/template.ts';
import { copyTemplate, insertDatabase, limitConnect, requireOwnNames } from './create-database.ts';
import { dropDatabase, forgetDatabase } from './drop-database.ts';
import { physicalName, warmComment, warmMark } from './role-owner.ts';

/*
 * A warm database is a copy of the template that is made before a tenant needs it, so that a new tenant does not wait
 * for the copy: a database of no tenant, reserved while it is made and filled when it is complete. Provisioning
 * reserves it for a tenant, in the transaction that gives it to the tenant.
 */

export interface FillResult {
  server: string;
  ready: number;
  made: number;
  dropped: number;
  /** Why the pool could not be filled; null when it was. */
  error: string | null;
}

/** Concurrent copies on one server. More of them would slow down the tenants of that server. */
const copyConcurrency = 2;

/**
 * Fills the pool of each of the servers up to `size`. First drops warm databases with other migrations and incomplete
 * ones.
 */
export async function fillPool(
  installation: Installation,
  servers: readonly Server[],
  size: number,
): Promise<FillResult[]> {
  return Promise.all(
    servers.map(async server => {
      const filled: FillResult = { server: server.name, ready: 0, made: 0, dropped: 0, error: null };
      await fillServer(installation, server, size, filled).catch((error: unknown) => {
        filled.error = errorText(error);
      });
      return filled;
    }),
  );
}

async function fillServer(installation: Installation, server: Server, size: number, filled: FillResult): Promise<void> {
  const adminUrl = installation.servers.adminUrl(server);
  const digest = await migrationsDigest();
  const mark = await warmMark(installation.control);
  await withPool(installation, server, async control => {
    await ensureTemplate(server, adminUrl);
    await withConnection(adminUrl, admin => dropOldTemplates(admin, server));
    filled.dropped = await dropWarm(installation, control, server, await findUnusable(installation, control, server));
    const { rows } = await control.query<{ ready: number }>(
      `select count(*)::int as ready from tenant_databases
        where tenant_id is null and state = 'filled' and server_id = $1`,
      [server.id],
    );
    filled.ready = rows[0]?.ready ?? 0;
    const missing = Array.from({ length: Math.max(0, size - filled.ready) });
    await runConcurrently(missing, fleetTasks(copyConcurrency), () =>
      withConnection(adminUrl, async admin => {
        await makeWarm(control, admin, server, { adminUrl, digest, mark });
        filled.ready++;
        filled.made++;
      }),
    );
  });
}

/** Runs work while no other process changes the pool of a server. */
async function withPool<T>(
  { controlUrl }: Installation,
  { id }: Server,
  work: (control: Queryable) => Promise<T>,
): Promise<T> {
  return withLock(controlUrl, lockSpaces.warm, id, connection => work(shareConnection(connection)));
}

/**
 * Drops the warm databases of a server. A database that a new tenant gets at the same time stays. Until `pool fill`
 * makes warm databases again, new tenants are copied from the template, which takes longer.
 * @returns the number of dropped databases
 */
export async function drainPool(installation: Installation, server: Server): Promise<number> {
  return withPool(installation, server, control => dropWarm(installation, control, server, undefined));
}

/** Returns the warm databases of a server that are unfinished, missing, or have other migrations than this build. */
async function findUnusable({ servers }: Installation, control: Queryable, server: Server): Promise<number[]> {
  const { rows: found } = await withConnection(servers.adminUrl(server), admin =>
    admin.query<{ name: string }>('select datname as name from pg_database where datconnlimit <> -2'),
  );
  const { rows } = await control.query<{ id: string }>(
    `select id from tenant_databases
      where tenant_id is null and server_id = $1
        and (state <> 'filled' or digest is distinct from $2 or not database_name = any ($3))`,
    [server.id, await migrationsDigest(), found.map(({ name }) => name)],
  );
  return rows.map(({ id }) => Number(id));
}

/**
 * @param ids of the warm databases; undefined: all of the server
 * @returns the number of dropped databases
 */
async function dropWarm(
  installation: Installation,
  control: Queryable,
  server: Server,
  ids: readonly number[] | undefined,
): Promise<number> {
  const { rows } = await control.query<{ id: string; database: string; role: string }>(
    `update tenant_databases set state = 'condemned'
      where tenant_id is null and server_id = $1 and ($2::bigint[] is null or id = any ($2))
      returning id, database_name as database, role_name as role`,
    [server.id, ids],
  );
  for (const { id, database, role } of rows) {
    await dropDatabase(installation, { server, database, role }, undefined);
    await forgetDatabase(control, Number(id));
  }
  return rows.length;
}

async function makeWarm(
  control: Queryable,
  admin: pg.Client,
  server: Server,
  { adminUrl, digest, mark }: { adminUrl: string; digest: string; mark: string },
): Promise<void> {
  const id = await insertDatabase(control, { server, origin: 'template', digest });
  const name = physicalName(server, id);
  await requireOwnNames(admin, { server, database: name, role: name }, { guid: undefined, warm: mark });
  await admin.query(`
    create role ${quote(name)} nologin; ${warmComment(name, mark)};
    grant ${quote(tenantGroup(server))} to ${quote(name)}`);
  await copyTemplate(admin, server, adminUrl, name);
  await admin.query(limitConnect(name, name));
  await control.query(
    `update tenant_databases set state = 'filled', filled_at = now() where id = $1 and state = 'reserved'`,
    [id],
  );
}

export interface WarmDatabase {
  database: string;
  server: string;
  /** `outdated`: it has other migrations than this build. The next fill replaces it, as well as `unfinished` ones. */
  state: 'ready' | 'outdated' | 'unfinished';
  createdAt: string;
}

/** Returns the warm databases of all servers, by number. */
export async function listPool({ statements }: Pick<Installation, 'statements'>): Promise<WarmDatabase[]> {
  return statements.execute<WarmDatabase[]>(
    `select database_name as database, s.name as server, ${isoTime('d.created_at')} as "createdAt",
            case when d.state <> 'filled' then 'unfinished' when digest = ? then 'ready' else 'outdated' end as state
       from tenant_databases d join servers s on s.id = server_id where tenant_id is null order by d.id`,
    [await migrationsDigest()],
  );
}
