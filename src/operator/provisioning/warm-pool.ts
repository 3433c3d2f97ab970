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
 * Warm databases: copies of the template that wait for a tenant, so that a new one need not wait for a copy. Each has a
 * number out of the sequence of the tenants, and is called after it. The tenant that claims it takes the number, so that
 * its name never comes again, and what belongs to whom can be told from names alone. Its states, in their order:
 *
 *   row           database and role        who goes on when the process is killed
 *   not ready     none, or half made       fill drops them, then the row
 *   ready         closed; role, no login   provision claims it; fill replaces it when it is of other migrations
 *   (no row) tenant `provisioning` has     closed; the role has no login yet: provision of that tenant renames both and
 *     the number                           opens the database, in one transaction of the server; or purge takes the row
 *   (no row) the tenant has the number     renamed: a tenant's database as any other
 *   (no row) nobody has the number         a leftover: fill drops it, and so does doctor --fix
 *
 * The row comes before the database and the claim moves the number from one table to another in one transaction, so a
 * number that is in neither belongs to nobody, ever. A warm database is closed and has no identity inside: one that is
 * open is somebody's, whatever its name, and is left alone.
 */

/**
 * Takes a warm database of this build's migrations out of the pool, in the transaction that makes the tenant's row. Two at
 * the same time never get the same.
 * @returns its number, which is to be the tenant's; undefined when none is ready
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
  /** Why it is not full; null when it is. */
  error: string | null;
}

/** Copies made at the same time on one server: more would take too much from the tenants there. */
const copyConcurrency = 2;

/** Fills the pool of every server up to `size`, after it has dropped what is of other migrations or was left half made. */
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
    await acquireLock(connection, lockSpaces.warm, server.id); // one fills it at a time
    const control = shareConnection(connection);
    await ensureTemplate(server, adminUrl);
    filled.dropped = await withConnection(adminUrl, async admin => {
      await dropOldTemplates(admin, server);
      return sweep(control, admin, server, digest);
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

/** @returns how many databases were dropped */
async function sweep(control: Queryable, admin: pg.Client, server: Server, digest: string): Promise<number> {
  const { rows: found } = await admin.query<{ name: string; closed: boolean; role: boolean }>(
    `select datname as name, not datallowconn or datconnlimit = -2 as closed, false as role from pg_database
      union all select rolname, not rolcanlogin, true from pg_roles where not exists (select from pg_database where datname = rolname)`,
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
  // Asked after the server was: a number that is in neither table by now is nobody's.
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
    create role ${quote(name)} nologin; grant ${quote(tenantGroup(server))} to ${quote(name)}; ${limitConnect(name, name)}`);
  await control.query('update warm_databases set ready_at = now() where id = $1', [id]);
}

export interface WarmDatabase {
  database: string;
  server: string;
  /** `outdated`: of other migrations than this build's; the next fill replaces it, and `unfinished` ones. */
  state: 'ready' | 'outdated' | 'unfinished';
  createdAt: string;
}

/** What waits in the pool. */
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
