import { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { errorText } from '../command/texts.ts';
import { type MoveRequest, moveTenant } from '../databases/move-tenant.ts';
import type { RunObservers } from '../databases/run-databases.ts';
import { listServers, noSuchServer, roomiest } from '../tenants/read-servers.ts';
import { findServer } from '../tenants/servers.ts';

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
    const receiver = to === undefined ? roomiest(others) : others.find(server => server.name === to);
    if (!receiver)
      throw new OperatorError(
        'The other servers do not have room for all tenants. Add one: npx backoffice server add <name> < url-file',
      );
    receiver.tenants++;
    return { slug, to: receiver.name };
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

async function tenantsOn(installation: Installation, name: string): Promise<string[]> {
  const { id } = await findServer(installation, name);
  const rows = await installation.statements.execute<{ slug: string }[]>(
    `select slug from tenants where server_id = ? and status <> 'provisioning' order by slug`,
    [id],
  );
  return rows.map(({ slug }) => slug);
}

/** A server with its tenants. */
interface ServerLoad {
  readonly name: string;
  /** Maximum number of tenants; null for no limit. */
  readonly capacity: number | null;
  readonly tenants: readonly { readonly slug: string; readonly bytes: number }[];
}

/** A move of a plan, and the bytes of the fullest server after it. */
interface PlannedMove {
  readonly slug: string;
  readonly from: string;
  readonly to: string;
  readonly bytes: number;
  readonly fullestAfter: number;
}

/** A move that gains less than this part of the average is not worth it. */
const minGain = 0.02;

/**
 * Plans moves that even out the bytes of servers. Each move makes the pair of its servers more even, so the plan may be
 * stopped after any of them: it moves the largest tenant of the fullest server that fits into half of the difference to
 * the emptiest one.
 */
function planRebalance(loads: readonly ServerLoad[]): PlannedMove[] {
  const servers = loads.map(({ name, capacity, tenants }) => ({
    name,
    capacity,
    tenants: [...tenants].sort((a, b) => b.bytes - a.bytes),
    bytes: tenants.reduce((sum, { bytes }) => sum + bytes, 0),
  }));
  const average = servers.reduce((sum, { bytes }) => sum + bytes, 0) / Math.max(1, servers.length);
  const moves: PlannedMove[] = [];
  for (;;) {
    const fullest = servers.reduce((a, b) => (b.bytes > a.bytes ? b : a), servers[0] as (typeof servers)[number]);
    const [emptiest] = servers
      .filter(({ capacity, tenants }) => capacity === null || tenants.length < capacity)
      .sort((a, b) => a.bytes - b.bytes);
    if (!fullest || !emptiest || fullest === emptiest) return moves;
    const half = (fullest.bytes - emptiest.bytes) / 2;
    const tenant = fullest.tenants.find(({ bytes }) => bytes <= half && bytes > 0 && bytes >= minGain * average);
    if (!tenant) return moves;
    fullest.tenants.splice(fullest.tenants.indexOf(tenant), 1);
    emptiest.tenants.push(tenant);
    fullest.bytes -= tenant.bytes;
    emptiest.bytes += tenant.bytes;
    const fullestAfter = Math.max(...servers.map(({ bytes }) => bytes));
    moves.push({ slug: tenant.slug, from: fullest.name, to: emptiest.name, bytes: tenant.bytes, fullestAfter });
  }
}
