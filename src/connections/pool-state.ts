import type pg from 'pg';

/** The settings of a tenant's connections. */
export interface TenantClientOptions extends pg.ClientConfig {
  /** The tenant and the schema version that a new connection must find inside the database. */
  readonly expected: { readonly guid: string; readonly schemaVersion: string };
  /** A server that sends nothing for this many milliseconds during a query counts as lost. Longer than `statement_timeout`. */
  readonly silenceMs: number;
  /** How long a new connection may take until it has proved where it leads, in milliseconds. */
  readonly openMs: number;
}

/** A request that waits for a connection of a tenant. */
export interface Waiter<Client> {
  readonly resolve: (client: Client) => void;
  readonly reject: (error: unknown) => void;
  /** Start of the wait, by `performance.now()`. */
  readonly since: number;
  readonly timer: NodeJS.Timeout;
}

/** The connections of one tenant as the budget, the wait queue and the idle connections count them. */
export interface PoolState<Client> {
  readonly options: TenantClientOptions;
  readonly idle: Client[];
  readonly waiting: Waiter<Client>[];
  inUse: number;
  /** Connections that are being opened. */
  opening: number;
  /** Connections that were told to close and that the server still sees. */
  closing: number;
  /** True once the pool takes no more requests. */
  readonly ended: boolean;
  /** `inUse` and `opening` together. */
  readonly inUseOrOpening: number;
  /** How often the tenant asks for connections; see `TenantPool`. */
  readonly usageScore: number;
}
