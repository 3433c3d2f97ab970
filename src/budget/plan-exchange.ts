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
 *   its connections to the control database (`reserved`) first, and keeps them.
 * - Some room stays free (`roomOf`), so that a command or a new process need not wait for others to give back: only a
 *   command may use it, and a service for its first connection to the control database and its first one to a tenant.
 *   The others give back until it is free again.
 * - While all processes are new, as when an installation starts, a service leaves more free on the server of the
 *   control database (`startRoomOf`): those that start with it on other machines have one connection each before their
 *   first exchange.
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
  const room = roomOf(smallest);
  const allReserved = reserved + sum(remaining, grant => grant.reserved);
  const allGranted = granted + sum(remaining, grant => grant.granted);
  const divided = Math.max(0, smallest - room - allReserved - sum(silent, grant => grant.granted));
  const lacking = Math.max(0, Math.min(base, maxBase(smallest - room, processes)) - reserved);
  const floor = floorOf(divided, processes);
  const demand = Math.max(floor, wanted + lacking);
  const shares = fairShares(
    [...others.map(grant => ({ ...grant, wanted: Math.max(floor, grant.wanted) })), { holder, kind, wanted: demand }],
    divided,
  );
  const share = shares.get(holder) ?? 0;
  /** Negative while a command uses the room, or after a process with a smaller budget has joined. */
  const free = smallest - room - allReserved - allGranted;
  const missing = sum(others, grant => Math.max(0, (shares.get(grant.holder) ?? 0) - grant.granted));

  const areNew = Math.max(heartbeat, ...others.map(grant => grant.heartbeat)) <= maxNewHeartbeat;
  const startRoom = areNew && base > 0 ? startRoomOf(smallest) : 0;

  const lent = Math.max(0, granted - share);
  const roomForCommand = Math.max(0, free + room - (base > 0 ? entriesOf(room) : 0));
  const roomForService = granted === 0 ? Math.min(1, roomForCommand) : 0;
  const fromFree = Math.min(Math.max(0, free - startRoom), Math.max(0, share - granted));
  const fromRoom = Math.min(kind === 'command' ? roomForCommand : roomForService, Math.max(0, demand - granted));
  const taken = Math.max(fromFree, fromRoom);
  // A process with one connection to the control database has the one of the room for its requests.
  const growth = fromFree < fromRoom && reserved > 0 ? 0 : Math.min(lacking, taken);
  const surplus = Math.floor((divided - sum([...shares.values()], value => value)) / processes);
  const spare = kind === 'command' ? 0 : Math.max(0, Math.min(surplus - lent, free - startRoom - taken - missing));
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

/** Connections of a budget that stay free for commands and new processes. */
function roomOf(budget: number): number {
  return Math.max(1, Math.min(4, Math.floor(budget / 20)));
}

/** Exchanges of a process while it is new: about three seconds if it wants more than it gets, and eight otherwise. */
const maxNewHeartbeat = 8;

/** Connections that stay free for the first exchanges of services that start at about the same time; none if few. */
function startRoomOf(budget: number): number {
  return Math.max(0, Math.min(8, Math.floor(budget / 2) - 12));
}

/**
 * Connections of the room that no grant takes on the server of the control database: the process with the entry
 * lock (`EntryLock`) has one there without a grant.
 */
function entriesOf(room: number): number {
  return Math.ceil(room / 2);
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
