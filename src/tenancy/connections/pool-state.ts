import type { SessionConfig } from '../../lib/postgres/session-client.ts';
import type { EnteredCluster, ExpectedTenant } from './tenant-identity.ts';

/** The settings of a tenant's connections. */
export interface TenantClientOptions extends SessionConfig {
  readonly expected: ExpectedTenant;
  /**
   * After this many milliseconds without a byte from the server during a query, the connection
   * counts as dead. Longer than `statement_timeout`.
   */
  readonly silenceMs: number;
  /** Maximum time to connect and to verify the tenant, in milliseconds. */
  readonly openMs: number;
}

/** A request that waits for a connection of a tenant. */
export interface Waiter<Client> {
  readonly resolve: (client: Client) => void;
  readonly reject: (error: unknown) => void;
  /** Start of the wait, by `performance.now()`. */
  readonly since: number;
  readonly timer: NodeJS.Timeout;
  readonly forgetDeadline: (() => void) | undefined;
}

/**
 * The connections of one tenant as the budget, the wait queue and the idle connections count
 * them.
 */
export interface PoolState<Client> {
  readonly options: TenantClientOptions;
  readonly cluster: EnteredCluster;
  /** Idle connections; the last one was used most recently. */
  readonly idle: Client[];
  /** Waiting requests, in the order of their arrival. */
  readonly waiting: Waiter<Client>[];
  inUse: number;
  /** Connections that are being opened. */
  opening: number;
  /** Connections that are being closed: the server still counts them. */
  closing: number;
  /** True once the pool accepts no more requests. */
  readonly ended: boolean;
  /** Sum of `inUse` and `opening`. */
  readonly inUseOrOpening: number;
  /**
   * Returns how many more connections the waiters need, within a maximum. Closing connections
   * still count.
   */
  unmetDemand(max: number): number;
  /** Called with the duration of each use of a connection, in milliseconds. */
  readonly onUsed: (ms: number) => void;
  /** The rate at which the tenant asks for connections; see `TenantPool`. */
  readonly usageScore: number;
  /**
   * When a connection was last used for a change that others read next, by `performance.now()`.
   */
  changedAt: number;
  /**
   * When a connection last became idle, opened or released, by `performance.now()`: the server
   * had answered it.
   */
  lastIdleAt: number;
}
