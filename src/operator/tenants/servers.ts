import { Server } from '../../control/fleet-entities.ts';
import { owners } from '../../control/secret-box.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';

/** A PostgreSQL server with the number of tenants on it; its URL is never shown. */
export interface ServerSummary {
  name: string;
  prefix: string;
  tenants: number;
  capacity: number | null;
}

/**
 * Makes a server known that tenants can be placed on.
 * @param url of any database there, with a login that may create databases and roles
 * @throws {OperatorError} when it cannot be used, or the name is taken
 */
export async function addServer(
  installation: Installation,
  name: string,
  url: string,
  capacity: number | null,
): Promise<void> {
  const { control, secrets } = installation;
  if (!/^[a-z][a-z0-9-]{0,30}$/.test(name))
    throw new OperatorError('a name has up to 31 lower-case letters, digits and hyphens', { usage: true });
  if (!URL.canParse(url) || !/^postgres(ql)?:$/.test(new URL(url).protocol))
    throw new OperatorError('that is not a postgresql:// URL', { usage: true });
  await withConnection(url, async client => {
    const { rows } = await client.query<{ able: boolean; version: number }>(
      `select rolsuper or (rolcreatedb and rolcreaterole) as able, current_setting('server_version_num')::int as version
        from pg_roles where rolname = current_user`,
    );
    if (!rows[0]?.able) throw new OperatorError('that login may not create databases and roles');
    if (rows[0].version < 160_000) throw new OperatorError('the server is older than PostgreSQL 16');
  });
  const em = control.em.fork();
  if (await em.findOne(Server, { name })) throw new OperatorError(`there is a server ${name} already`);
  const { prefix } = await em.findOneOrFail(Server, { name: 'default' });
  await em.insert(Server, { name, prefix, capacity, adminUrl: secrets.seal(url, owners.serverUrl(name)) });
}

export async function listServers({ control }: Installation): Promise<ServerSummary[]> {
  const rows = await control.em
    .fork()
    .execute<{ name: string; prefix: string; tenants: string; capacity: number | null }[]>(
      `select s.name, s.prefix, s.capacity, count(t.id) as tenants
      from servers s left join tenants t on t.server_id = s.id group by s.id order by s.id`,
    );
  return rows.map(row => ({
    name: row.name,
    prefix: row.prefix,
    tenants: Number(row.tenants),
    capacity: row.capacity,
  }));
}

/**
 * Where a new tenant goes: to the server that is named, or to the one with the most room left, and the fewest tenants
 * among those without a limit.
 */
export async function placeTenant(installation: Installation, named: string | undefined): Promise<Server> {
  const em = installation.control.em.fork();
  if (named !== undefined) {
    const server = await em.findOne(Server, { name: named });
    if (!server) throw new OperatorError(`there is no server ${named}`);
    return server;
  }
  const room = ({ capacity, tenants }: ServerSummary): number => (capacity ?? Number.MAX_SAFE_INTEGER) - tenants;
  const [best] = (await listServers(installation)).sort((a, b) => room(b) - room(a));
  if (!best || room(best) <= 0)
    throw new OperatorError('no server has room for another tenant: add one, or raise a capacity');
  return em.findOneOrFail(Server, { name: best.name });
}
