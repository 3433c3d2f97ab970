import { fairShares } from './fair-shares.ts';
import type { Grant, GrantChange, ServerGrants } from './grants.ts';

interface Situation {
  /** Maximum connections to the server, over all processes, in the settings of this process. */
  readonly budget: number;
  readonly server: ServerGrants;
  readonly holder: string;
  /** Connections of this process that exist, those being opened or closed included. */
  readonly held: number;
  readonly wanted: number;
  readonly reserved: number;
  readonly heartbeat: number;
  /** True for a process that has been silent for so long that it can open no connection. */
  readonly isSilent: (grant: Grant) => boolean;
  /** True for a silent process that has no connection left. */
  readonly isGone: (grant: Grant) => boolean;
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
 *   its own share and the free connections do not cover that. Otherwise it keeps what it has, wanted or not.
 * - A process grows by what is free only, and `granted` never falls below the connections that it still has.
 * - The grant of a silent process counts until it is removed, which needs that no connection of it is left.
 */
export function planExchange(situation: Situation): Plan {
  const { budget, server, holder, held, wanted, reserved, heartbeat, isSilent, isGone } = situation;
  const own = server.grants.find(grant => grant.holder === holder);
  const remaining = server.grants.filter(grant => grant.holder !== holder && !isGone(grant));
  const others = remaining.filter(grant => !isSilent(grant));
  const granted = own?.granted ?? 0;
  // While settings differ, as during a rolling restart with new ones, the smallest budget applies to all.
  const smallest = Math.min(budget, ...others.map(grant => grant.budget));

  const processes = others.length + 1;
  const capacity = capacityOf(smallest, reserved + sum(remaining, grant => grant.reserved), processes);
  const divided = Math.max(0, capacity - sum(remaining.filter(isSilent), grant => grant.granted));
  const floor = floorOf(divided, processes);
  const demands = [...others, { holder, wanted }].map(demand => ({
    ...demand,
    wanted: Math.max(floor, demand.wanted),
  }));
  const shares = fairShares(demands, divided);
  const share = shares.get(holder) ?? 0;
  /** Below zero when a new process has brought connections to the control database, or a smaller budget. */
  const free = capacity - granted - sum(remaining, grant => grant.granted);
  const missing = sum(others, grant => Math.max(0, (shares.get(grant.holder) ?? 0) - grant.granted));

  const lent = Math.max(0, granted - share);
  const taken = Math.min(Math.max(0, free), Math.max(0, share - granted));
  const surplus = Math.floor((divided - sum([...shares.values()], value => value)) / processes);
  const spare = Math.min(surplus - roomForNewcomer(divided) - lent, free - taken - missing);
  const target =
    missing > free ? granted + taken - Math.min(lent, missing - free) : granted + taken + Math.max(0, spare);
  return {
    target,
    change: {
      version: server.version,
      own: {
        holder,
        // Connections above the grant exist only if the control database lost a change; they raise no grant.
        granted: Math.max(target, Math.min(held, granted)),
        held,
        wanted,
        reserved,
        budget,
        heartbeat,
      },
      remove: server.grants.filter(grant => grant.holder !== holder && isGone(grant)).map(grant => grant.holder),
    },
  };
}

/**
 * Connections that the grants of a server may sum to. If the processes need most of the budget for the control
 * database, each still gets one connection: to serve nobody would be worse.
 */
function capacityOf(budget: number, reserved: number, processes: number): number {
  return Math.max(budget - reserved, Math.min(budget, processes));
}

/** A share for a process without demand, so that its next request finds a connection: a tenth of all at most. */
function floorOf(capacity: number, processes: number): number {
  return Math.min(2, Math.floor(capacity / (10 * processes)));
}

/** Connections that nobody takes without a demand, so that a new process need not wait for others to give back. */
function roomForNewcomer(capacity: number): number {
  return Math.min(2, Math.floor(capacity / 20));
}

function sum<Item>(items: readonly Item[], value: (item: Item) => number): number {
  return items.reduce((total, item) => total + value(item), 0);
}
