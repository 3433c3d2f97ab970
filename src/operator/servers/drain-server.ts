import { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { errorText } from '../command/texts.ts';
import { type MoveRequest, moveTenant } from '../databases/move-tenant.ts';
import type { RunObservers } from '../databases/run-databases.ts';
import { listServers, noSuchServer } from '../tenants/read-servers.ts';
import { planRebalance, type ServerLoad } from './plan-rebalance.ts';

/** What became of one tenant of a drained server. */
export interface DrainOutcome {
  slug: string;
  to: string;
  /** How long requests waited, in ms; null when the move has failed. */
  pauseMs: number | null;
  error: string | null;
}

interface DrainObservers extends RunObservers {
  onOutcome?: (outcome: DrainOutcome) => void;
}

/**
 * Moves every tenant of a server to others, each to the one with the most room. A tenant that fails does not stop the
 * others; run it again to go on.
 * @param to the only server that tenants are moved to, if it is given
 * @throws {OperatorError} as `planDrain`, before anything is moved
 */
export async function drainServer(
  installation: Installation,
  name: string,
  { to, ...request }: Omit<MoveRequest, 'to'> & { to?: string | undefined },
  { onOutcome, ...observers }: DrainObservers = {},
): Promise<DrainOutcome[]> {
  const outcomes: DrainOutcome[] = [];
  for (const move of await planDrain(installation, name, to)) {
    if (observers.signal?.aborted) break;
    const outcome = await moveTenant(installation, move.slug, { ...request, to: move.to }, observers).then(
      ({ pauseMs }): DrainOutcome => ({ ...move, pauseMs, error: null }),
      (error: unknown): DrainOutcome => ({ ...move, pauseMs: null, error: errorText(error) }),
    );
    outcomes.push(outcome);
    onOutcome?.(outcome);
  }
  return outcomes;
}

/**
 * Returns where the tenants of a server would move, and changes nothing.
 * @throws {OperatorError} when there is no such server, or the others do not have room for all
 */
export async function planDrain(
  installation: Installation,
  name: string,
  to: string | undefined,
): Promise<{ slug: string; to: string }[]> {
  const slugs = await tenantsOn(installation, name);
  const others = (await listServers(installation)).filter(server => server.name !== name);
  if (to !== undefined && others.every(server => server.name !== to)) throw noSuchServer(to);
  return slugs.map(slug => {
    const receiver = to ?? roomiest(others).name;
    for (const server of others) if (server.name === receiver) server.tenants++;
    return { slug, to: receiver };
  });
}

/** Returns moves that even out the servers by the size of their tenants. Changes nothing. */
export async function planRebalanceOf(installation: Installation): Promise<ReturnType<typeof planRebalance>> {
  const em = installation.control.em.fork();
  const tenants = await em.execute<{ slug: string; server: number; database: string }[]>(
    `select slug, server_id as server, database_name as database from tenants where status <> 'provisioning'`,
  );
  const loads = await Promise.all(
    (await em.findAll(Server)).map(async (server): Promise<ServerLoad> => {
      const names = tenants.filter(tenant => tenant.server === server.id).map(({ database }) => database);
      const { rows } = await withConnection(installation.servers.adminUrl(server), client =>
        client.query<{ database: string; bytes: string }>(
          'select datname as database, pg_database_size(oid) as bytes from pg_database where datname = any ($1)',
          [names],
        ),
      );
      const bytes = new Map(rows.map(row => [row.database, Number(row.bytes)]));
      return {
        name: server.name,
        capacity: server.capacity ?? null,
        tenants: tenants
          .filter(tenant => tenant.server === server.id)
          .map(({ slug, database }) => ({ slug, bytes: bytes.get(database) ?? 0 })),
      };
    }),
  );
  return planRebalance(loads);
}

async function tenantsOn({ statements }: Installation, name: string): Promise<string[]> {
  const [server] = await statements.execute<{ id: number }[]>('select id from servers where name = ?', [name]);
  if (!server) throw noSuchServer(name);
  const rows = await statements.execute<{ slug: string }[]>(
    `select slug from tenants where server_id = ? and status <> 'provisioning' order by slug`,
    [server.id],
  );
  return rows.map(({ slug }) => slug);
}

function roomiest<Server extends { name: string; capacity: number | null; tenants: number }>(
  servers: readonly Server[],
): Server {
  const room = ({ capacity, tenants }: Server): number => (capacity ?? Number.MAX_SAFE_INTEGER) - tenants;
  const [best] = servers.toSorted((a, b) => room(b) - room(a));
  if (!best || room(best) <= 0)
    throw new OperatorError(
      'The other servers do not have room for all tenants. Add one: npx backoffice server add <name> < url-file',
    );
  return best;
}
