import { fairShares } from './fair-shares.ts';
import type { GrantChange, ServerGrants } from './grants.ts';
import type { Silence } from './silence.ts';

interface Situation {
  readonly kind: 'service' | 'command';
  /** Maximum connections to the server, over all processes, in the settings of this process. */
  readonly budget: number;
  /** Connections to the control database that this process wants, if that is on the server; otherwise 0. */
  readonly base: number;
  readonly server: ServerGrants;
  readonly holder: string;
  /** Connections of this process that exist, those being opened or closed included. */
  readonly held: number;
  /** Connections that this process has a use for, without those to the control database. */
  readonly wanted: number;
  readonly heartbeat: number;
  /** How long the other processes have been silent. */
  readonly silence: Pick<Silence, 'isSilent' | 'isGone'>;
}

interface Plan {
  /** The limit of this process once the change is confirmed. A lower one applies at once. */
  readonly target: number;
  readonly change: GrantChange;
}

/**
 * Plans one exchange of a process: what it takes of the free connections, and what it gives back.
 *
 * - Fair shares of all demands decide. A process with more than its share gives back when another one has less than
 *   its own share and the free connections do not cover that. Otherwise it keeps what it has, wanted or not, and a
 *   service takes a part of what nobody wants.
 * - A process grows by what is free only, and `granted` never falls below the connections that it still has. It takes
 *   its connections to the control database (`reserved`) first, also from a share that it does not use, and keeps them.
 * - Some connections stay free (`reserveOf`), so that a command or a new process need not wait for others to give back:
 *   only a command may take of them, and a service its first connection to the control database and its first one to a
 *   tenant. The others give back until they are free again.
 * - The grant of a silent process counts until it is removed, which needs that no connection of it is left.
 */
export function planExchange(situation: Situation): Plan {
  const { kind, budget, base, server, holder, held, wanted, heartbeat, silence } = situation;
  const own = server.grants.find(grant => grant.holder === holder);
  const remaining = server.grants.filter(grant => grant.holder !== holder && !silence.isGone(grant));
  const others = remaining.filter(grant => !silence.isSilent(grant));
  const silent = remaining.filter(grant => silence.isSilent(grant));
  const { granted, reserved } = own ?? { granted: 0, reserved: 0 };
  // While settings differ, as during a rolling restart with new ones, the smallest budget applies to all.
  const smallest = Math.min(budget, ...others.map(grant => grant.budget));

  const processes = others.length + 1;
  const areNew = Math.max(heartbeat, ...others.map(grant => grant.heartbeat)) <= maxNewHeartbeat;
  const { reserve, forEntries } = reserveOf(smallest, base > 0, areNew);
  const usable = smallest - reserve;
  const allReserved = reserved + sum(remaining, grant => grant.reserved);
  const allGranted = granted + sum(remaining, grant => grant.granted);
  const divided = Math.max(0, usable - allReserved - sum(silent, grant => grant.granted));
  const lacking = Math.max(0, Math.min(base, maxBase(usable, processes)) - reserved);
  const floor = floorOf(divided, processes);
  const demand = Math.max(floor, wanted + lacking);
  const shares = fairShares(
    [...others.map(grant => ({ ...grant, wanted: Math.max(floor, grant.wanted) })), { holder, kind, wanted: demand }],
    divided,
  );
  const share = shares.get(holder) ?? 0;
  /** Below zero when some of the reserve is taken, or a new process has brought a smaller budget. */
  const free = usable - allReserved - allGranted;
  const missing = sum(others, grant => Math.max(0, (shares.get(grant.holder) ?? 0) - grant.granted));

  const lent = Math.max(0, granted - share);
  const maxFromReserve = kind === 'command' ? demand : granted === 0 ? 1 : 0;
  const reserveLeft = Math.max(0, free + reserve - forEntries);
  const fromFree = Math.min(Math.max(0, free), Math.max(0, share - granted));
  const fromReserve = Math.min(maxFromReserve, reserveLeft, Math.max(0, demand - granted));
  const taken = Math.max(fromFree, fromReserve);
  // A process that has its whole share turns unused connections of it into those to the control database that it lacks.
  const turned = taken === 0 && granted >= share ? Math.min(lacking, Math.max(0, share - held)) : 0;
  // A process that has taken its connection to the control database from the reserve uses it for its requests, too.
  const growth = fromFree < fromReserve && reserved > 0 ? 0 : turned + Math.min(lacking, taken);
  const surplus = Math.floor((divided - sum([...shares.values()], value => value)) / processes);
  const spare = kind === 'command' ? 0 : Math.max(0, Math.min(surplus - lent, free - taken - missing));
  const kept = missing > free ? granted - Math.min(lent, missing - free) : granted + spare;
  const target = kept + taken - growth;
  return {
    target,
    change: {
      version: server.version,
      own: {
        holder,
        kind,
        // Connections above the grant exist only if the control database lost a change; they raise no grant.
        granted: Math.max(target, Math.min(held, granted)),
        held,
        wanted: wanted + lacking - growth,
        reserved: reserved + growth,
        budget,
        heartbeat,
      },
      remove: server.grants
        .filter(grant => grant.holder !== holder && silence.isGone(grant))
        .map(grant => grant.holder),
    },
  };
}

/** Exchanges of a process while it is new: about three seconds if it wants more than it gets, and eight otherwise. */
const maxNewHeartbeat = 8;

/**
 * Connections of a budget that stay free: a twentieth of it, one to four. On the server of the control database:
 * - no grant takes half of that (`forEntries`): a process with the entry lock (`EntryLock`) has one connection there
 *   before its first exchange;
 * - up to eight more stay free while all processes are new, as when an installation starts: those that start on other
 *   machines at the same moment have one connection each before their first exchange.
 */
function reserveOf(budget: number, isControlServer: boolean, areNew: boolean): { reserve: number; forEntries: number } {
  const always = Math.max(1, Math.min(4, Math.floor(budget / 20)));
  if (!isControlServer) return { reserve: always, forEntries: 0 };
  const atStart = areNew ? Math.max(0, Math.min(8, Math.floor(budget / 2) - 12)) : 0;
  return { reserve: always + atStart, forEntries: Math.ceil(always / 2) };
}

/** Connections to the control database that a process may take: if the budget is small, tenants have a third. */
function maxBase(budget: number, processes: number): number {
  return Math.max(2, Math.floor((2 * budget) / (3 * processes)));
}

/** A share for a process without demand, so that its next request finds a connection: a tenth of all at most. */
function floorOf(capacity: number, processes: number): number {
  return Math.min(2, Math.floor(capacity / (10 * processes)));
}

function sum<Item>(items: readonly Item[], value: (item: Item) => number): number {
  return items.reduce((total, item) => total + value(item), 0);
}
