import type { Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { runConcurrently } from '../command/run-fleet.ts';
import { errorText } from '../command/texts.ts';
import type { RunObservers } from '../databases/protocol/run-databases.ts';
import { type MoveRequest, moveTenant } from '../databases/verbs/move-tenant.ts';
import { planLeftObjects } from '../databases/verbs/plan-move.ts';
import { listServers, noSuchServer, roomiest } from '../registry/read-servers.ts';
import { findServer } from '../registry/servers.ts';

/** The outcome for one tenant of a drained server. */
export interface DrainOutcome {
  slug: string;
  to: string;
  /** The milliseconds that requests waited; null when the move has failed. */
  pauseMs: number | null;
  error: string | null;
}

interface DrainObservers extends RunObservers {
  onOutcome?: (outcome: DrainOutcome) => void;
}

/**
 * Moves every tenant of a server to others, each to the one with the most room. A tenant that
 * fails does not stop the others; run it again to go on.
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
    const outcome = await moveTenant(
      installation,
      move.slug,
      { ...request, to: move.to },
      observers,
    ).then(
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
    const receiver =
      to === undefined ? roomiest(others) : others.find(server => server.name === to);
    if (!receiver) {
      throw new OperatorError(
        'The other servers do not have room for all tenants. Add one: bin/backoffice server add <name> < url-file',
      );
    }
    receiver.tenants++;
    return { slug, to: receiver.name };
  });
}

/**
 * A move of a plan, with the objects that it leaves behind, or the reason why it would be
 * refused.
 */
export interface PlannedDrain {
  slug: string;
  to: string;
  leaves: readonly string[];
  error: string | null;
}

/** Returns the moves of a plan with the objects that they leave behind, and changes nothing. */
export async function planDrained(
  installation: Installation,
  moves: readonly { slug: string; to: string }[],
  leaveSchemas: boolean,
): Promise<PlannedDrain[]> {
  return runConcurrently(moves, concurrentLooks, move =>
    planLeftObjects(installation, move.slug, leaveSchemas).then(
      ({ leaves }): PlannedDrain => ({ ...move, leaves, error: null }),
      (error: unknown): PlannedDrain => ({ ...move, leaves: [], error: errorText(error) }),
    ),
  );
}

/**
 * Maximum concurrent reads of such objects: each has a connection to the control database and
 * one to a tenant's.
 */
const concurrentLooks = 2;

async function tenantsOn(installation: Installation, name: string): Promise<string[]> {
  const { id } = await findServer(installation, name);
  const { rows } = await installation.statements.query<{ slug: string }>(
    `select slug from tenants where server_id = $1 and status <> 'provisioning' order by slug`,
    [id],
  );
  return rows.map(({ slug }) => slug);
}
