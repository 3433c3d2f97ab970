import type pg from 'pg';
import type { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { inTransaction } from '../../lib/postgres/in-transaction.ts';
import { quoteIdentifier } from '../../lib/postgres/quote.ts';
import { isPhysicalName } from '../databases/store/database-names.ts';
import { noSuchServer } from '../registry/read-servers.ts';
import { findServer } from '../registry/servers.ts';
import { tenantGroup } from '../schema/template.ts';

/** A server, and the things that end when it is removed. */
export interface ServerRemoval {
  name: string;
  /** Databases of tenants on a lost server that are not current: they are forgotten. */
  forgotten: number;
  /**
   * Tenants that were on the server once: `restore --from` does not know the names any more
   * that their databases had there.
   */
  formerTenants: number;
  /**
   * Databases with names of this installation that belong to no tenant: they stay. Null when
   * the server is lost.
   */
  left: string[] | null;
}

interface RemovalFacts extends Omit<ServerRemoval, 'name' | 'left'> {
  tenants: string[];
  unfinished: string[];
}

const facts = `
  select array(select slug from tenants where server_id = s.id order by slug) as tenants,
         array(select distinct slug from tenant_databases d join tenants t on t.id = tenant_id
                where d.server_id = s.id and d.state not in ('current', 'gone') order by slug) as unfinished,
         (select count(*)::int from tenant_databases
           where server_id = s.id and state not in ('current', 'gone')) as forgotten,
         (select count(distinct tenant_id)::int from tenant_databases
           where server_id = s.id and state = 'gone') as "formerTenants"
    from servers s where id = $1`;

/**
 * Removes a server from the installation: drops the templates and the group role on it, and
 * deletes its rows in the control database. It can be run again after it was killed.
 *
 * No tenant loses its server: a foreign key refuses the removal while a tenant is on it, also
 * one that is placed there at the same time.
 * @param lost true when the server is gone: it is not connected to, and nothing is dropped on
 *   it
 * @param isDryRun true to return what the removal ends, and to change nothing
 * @throws {OperatorError} when there is no such server, when tenants are on it, or other
 *   databases of tenants that can still be dropped
 */
export async function removeServer(
  installation: Installation,
  name: string,
  lost: boolean,
  isDryRun: boolean,
): Promise<ServerRemoval> {
  const server = await findServer(installation, name);
  const { forgotten, formerTenants } = await requireUnused(installation, server, lost);
  const url = installation.servers.adminUrl(server);
  const left = lost
    ? null
    : await withConnection(url, admin => databasesLeft(installation, admin, server));
  const removal = { name, forgotten, formerTenants, left };
  if (isDryRun) return removal;
  if (!lost) await withConnection(url, admin => dropTemplates(admin, server));

  await withConnection(installation.controlUrl, control =>
    inTransaction(control, async () => {
      // The databases of a lost server are gone.
      await control.query(
        `delete from tenant_databases where server_id = $1 and (state = 'gone' or state <> 'current' and $2)`,
        [server.id, lost],
      );
      await control.query('delete from servers where id = $1', [server.id]).catch(cause => {
        if (sqlState(cause) !== '23503') throw cause;
        throw new OperatorError(
          `${name} has got a tenant or a database meanwhile: it was not removed`,
          { cause },
        );
      });
    }),
  );
  return removal;
}

async function requireUnused(
  installation: Installation,
  server: Server,
  lost: boolean,
): Promise<RemovalFacts> {
  const { name, id } = server;
  if (!server.adminUrl) {
    throw new OperatorError(`${name} has the control database: it cannot be removed`);
  }

  const { rows } = await installation.statements.query<RemovalFacts>(facts, [id]);
  const [found] = rows;
  if (!found) throw noSuchServer(name);

  const { tenants, unfinished } = found;
  if (tenants.length > 0) {
    throw new OperatorError(
      `Tenants are on ${name}: ${named(tenants)}. Move them to other servers, and purge deleted ones: ` +
        `bin/backoffice server drain ${name}`,
    );
  }
  if (unfinished.length > 0 && !lost) {
    throw new OperatorError(
      `${name} has restored, former or unfinished databases of ${named(unfinished)}. List them: bin/backoffice databases. ` +
        'Then drop each: bin/backoffice databases drop SLUG DATABASE',
    );
  }

  return found;
}

const maxNamed = 10;

function named(slugs: readonly string[]): string {
  const more = slugs.length - maxNamed;
  return [...slugs.slice(0, maxNamed), ...(more > 0 ? [`and ${more} more`] : [])].join(', ');
}

async function databasesLeft(
  { statements }: Installation,
  admin: pg.Client,
  server: Server,
): Promise<string[]> {
  const { rows } = await admin.query<{ name: string }>(
    'select datname as name from pg_database order by datname',
  );
  const own = rows.map(({ name }) => name).filter(name => isPhysicalName(server, name));
  const { rows: tenants } = await statements.query<{ name: string }>(
    `select database_name as name from tenant_databases where state <> 'gone'`,
  );
  const known = new Set(tenants.map(({ name }) => name));
  return own.filter(name => !known.has(name));
}

/** Drops the templates of all builds, and the group role unless a role is still in it. */
async function dropTemplates(admin: pg.Client, server: Server): Promise<void> {
  const { rows } = await admin.query<{ name: string }>(
    'select datname as name from pg_database where starts_with(datname, $1) and not datallowconn',
    [`${server.prefix}_template_`],
  );
  for (const { name } of rows) {
    await admin.query(`drop database if exists ${quoteIdentifier(name)}`);
  }
  await admin.query(`drop role if exists ${quoteIdentifier(tenantGroup(server))}`).catch(error => {
    if (sqlState(error) !== '2BP01') throw error; // another database or role depends on it
  });
}
