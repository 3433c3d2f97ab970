/**
 * Connections that one task of a command has open at the same time, one of them to the control
 * database.
 */
const taskConnections = 4;
/** The minimum connections of a process on the server of the control database. */
const minOnControlServer = 4;
/** The minimum connections of a process on another server. */
const minOnServer = 2;
/**
 * Minimum connections to the control database: two for statements, so that one that waits does
 * not stop the others, and one for the change feed.
 */
const minControl = 3;
const minReserve = 6;

/** The connections of one process to one server. */
export interface Share {
  /** Connections to the control database, the change feed included; 0 on another server. */
  readonly control: number;
  /** Connections to the databases of tenants. */
  readonly tenants: number;
}

/** Returns the part of `CONNECTION_BUDGET` that is kept for commands. */
export function reserveOf(budget: number): number {
  return Math.max(minReserve, Math.ceil(budget / 10));
}

/**
 * Returns how many tasks of a command run at the same time: the first one always, and each
 * further one whose connections fit in the reserve.
 * @param max `--concurrency`
 */
export function taskLimit(budget: number, max: number): number {
  return Math.max(1, Math.min(max, Math.floor(reserveOf(budget) / taskConnections)));
}

interface ShareOptions {
  /** `CONNECTION_BUDGET` */
  budget: number;
  /** Running processes of the service. */
  services: number;
  /** True on the server of the control database. */
  hasControl: boolean;
  /** `CONTROL_CONNECTIONS` and the change feed. */
  maxControl: number;
}

/**
 * Returns the share of a process: its part of the budget less the reserve, and at least the
 * minimum.
 */
export function shareOf({ budget, services, hasControl, maxControl }: ShareOptions): Share {
  const part = Math.floor((budget - reserveOf(budget)) / services);
  if (!hasControl) return { control: 0, tenants: Math.max(minOnServer, part) };

  const share = Math.max(minOnControlServer, part);
  const control = Math.max(minControl, Math.min(Math.floor(share / 3), maxControl));

  return { control, tenants: share - control };
}

/** Returns the share of a process while the other processes have not made room for it yet. */
export function minimumShare(hasControl: boolean): Share {
  return hasControl
    ? { control: minControl, tenants: minOnControlServer - minControl }
    : { control: 0, tenants: minOnServer };
}

/**
 * Returns the share of a process that the other processes may have stopped to count: the
 * connection of its beats, and the change feed.
 */
export function lostShare(hasControl: boolean): Share {
  return { control: hasControl ? 2 : 0, tenants: 0 };
}
