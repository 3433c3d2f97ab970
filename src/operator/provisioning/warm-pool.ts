import type { EntityManager } from '@mikro-orm/postgresql';
import type pg from 'pg';
import { Server } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { acquireLock, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { type Queryable, shareConnection } from '../../postgres/shared-connection.ts';
import { errorText } from '../error-text.ts';
import { runConcurrently } from '../run-concurrently.ts';
import { dropOldTemplates, ensureTemplate, migrationsDigest, tenantGroup } from '../schema/template.ts';
import { warmName, warmNumber } from './physical-names.ts';
import { copyTemplate, limitConnect } from './tenant-database.ts';

/*
 * A warm database is a copy of the template that is made before a tenant needs it, so that a new tenant does not wait
 * for the copy. Its number comes from the sequence of the tenants' ids, and its name contains the number. The tenant
 * that claims it gets the number as its id. So a name is never used twice, and it alone shows what a database belongs
 * to.
 *
 * The states of a warm database, in order. After a process was killed, the next step continues from the state it left:
 *
 *   record of the number              database and role            next step
 *   row in warm_databases, not ready  absent or incomplete         fill drops them and deletes the row
 *   row in warm_databases, ready      closed; role without login   provision claims it; fill replaces it if it has
 *                                                                  other migrations than this build
 *   tenant in state `provisioning`    closed; role without login   provision of that tenant renames both and opens
 *                                                                  the database, in one transaction; or purge
 *                                                                  deletes the row
 *   provisioned tenant                renamed, open, with login    none: it is a tenant database
 *   none                              closed                       fill or doctor --fix drops it
 *
 * I1: The row is inserted before the database is created, and a claim moves the number between the tables in one
 *     transaction. So a number that neither table contains will never be in use again.
 * I2: A warm database is closed and has no identity inside. So an open database holds data, whatever its name: it is
 *     never dropped.
 */

/**
 * Claims a warm database with the migrations of this build, in the transaction that inserts the tenant's row.
 * Concurrent claims get different databases.
 * @returns its number, which becomes the id of the tenant; undefined when no database is ready
 */
export async function claimWarmDatabase(em: EntityManager, server: Server): Promise<number | undefined> {
  const [row] = await em.execute<{ id: string }[]>(
    `delete from warm_databases where id = (
       select id from warm_databases where server_id = ? and digest = ? and ready_at is not null
        order by id limit 1 for update skip locked)
      returning id`,
    [server.id, await migrationsDigest()],
  );
  return row && Number(row.id);
}

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
 * Fills the pool of every server up to `size`. First drops warm databases with other migrations and incomplete ones.
 */
export async function fillPool(installation: Installation, size: number): Promise<FillResult[]> {
  const servers = await installation.control.em.fork().findAll(Server, { orderBy: { id: 'asc' } });
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
  await withConnection(installation.controlUrl, async connection => {
    await acquireLock(connection, lockSpaces.warm, server.id); // one process at a time fills the pool of a server
    const control = shareConnection(connection);
    await ensureTemplate(server, adminUrl);
    filled.dropped = await withConnection(adminUrl, async admin => {
      await dropOldTemplates(admin, server);
      return dropWarmDatabases(control, admin, server, digest);
    });
    const { rowCount } = await control.query<never>('select from warm_databases where server_id = $1', [server.id]);
    filled.ready = rowCount ?? 0;
    const missing = Array.from({ length: Math.max(0, size - filled.ready) });
    await runConcurrently(missing, copyConcurrency, () =>
      withConnection(adminUrl, async admin => {
        await makeWarm(control, admin, server, adminUrl, digest);
        filled.ready++;
        filled.made++;
      }),
    );
  });
}

/**
 * Drops the warm databases of a server with other migrations than those of the digest, unfinished ones, and leftovers.
 * The caller holds the lock of the pool. @returns the number of dropped databases
 */
export async function dropWarmDatabases(
  control: Queryable,
  admin: pg.Client,
  server: Server,
  digest: string,
): Promise<number> {
  const { rows: found } = await admin.query<{ name: string; closed: boolean; role: boolean }>(
    `select datname as name, not datallowconn or datconnlimit = -2 as closed, false as role from pg_database
      union all select rolname, not rolcanlogin, true from pg_roles
                 where not exists (select from pg_database where datname = rolname)`,
  );
  const present = new Set(found.filter(({ role }) => !role).map(({ name }) => warmNumber(server, name)));
  const { rows } = await control.query<{ id: string }>('select id from warm_databases where server_id = $1', [
    server.id,
  ]);
  const missing = rows.map(({ id }) => Number(id)).filter(id => !present.has(id));
  await control.query(
    'delete from warm_databases where server_id = $1 and (digest <> $2 or ready_at is null or id = any ($3))',
    [server.id, digest, missing],
  );
  // This query runs after that of the server. So by I1, a number that neither table contains now is a leftover.
  const { rows: taken } = await control.query<{ id: string }>(
    `select id from warm_databases union all select id from tenants where status = 'provisioning'`,
  );
  const known = new Set(taken.map(({ id }) => Number(id)));
  let dropped = 0;
  for (const { name, closed, role } of found) {
    const id = warmNumber(server, name);
    if (id === undefined || known.has(id) || !closed) continue;
    if (!role) {
      await admin.query(`drop database if exists ${quote(name)}`);
      dropped++;
    }
    await admin.query(`drop role if exists ${quote(name)}`);
  }
  return dropped;
}

async function makeWarm(
  control: Queryable,
  admin: pg.Client,
  server: Server,
  adminUrl: string,
  digest: string,
): Promise<void> {
  const { rows } = await control.query<{ id: string }>(
    `insert into warm_databases (id, server_id, digest)
      values (nextval(pg_get_serial_sequence('tenants', 'id')), $1, $2) returning id`,
    [server.id, digest],
  );
  const id = Number(rows[0]?.id);
  const name = warmName(server, id);
  await copyTemplate(admin, server, adminUrl, name);
  await admin.query(`
    create role ${quote(name)} nologin;
    grant ${quote(tenantGroup(server))} to ${quote(name)};
    ${limitConnect(name, name)}`);
  await control.query('update warm_databases set ready_at = now() where id = $1', [id]);
}

export interface WarmDatabase {
  database: string;
  server: string;
  /** `outdated`: it has other migrations than this build. The next fill replaces it, as well as `unfinished` ones. */
  state: 'ready' | 'outdated' | 'unfinished';
  createdAt: string;
}

/** Returns the warm databases of all servers, by number. */
export async function listPool({ control }: Installation): Promise<WarmDatabase[]> {
  const digest = await migrationsDigest();
  const rows = await control.em
    .fork()
    .execute<{ id: string; server: string; prefix: string; digest: string; ready: boolean; created: string }[]>(
      `select w.id, name as server, prefix, digest, ready_at is not null as ready,
              to_char(w.created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as created
         from warm_databases w join servers s on s.id = server_id order by w.id`,
    );
  return rows.map(({ id, server, prefix, digest: own, ready, created }) => ({
    database: warmName({ prefix }, Number(id)),
    server,
    state: !ready ? 'unfinished' : own === digest ? 'ready' : 'outdated',
    createdAt: created,
  }));
}
