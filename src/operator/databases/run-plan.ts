import type { Server } from '../../control/control-entities.ts';
import type { KeptBy, TenantDatabase } from './database-store.ts';
import type { Fill } from './fill-database.ts';

/** A new database: where, what of, and how it is filled. */
interface Placement {
  readonly server: Server;
  readonly origin: string;
  /** The last migration of its data; undefined: that of this build. */
  readonly version?: string | undefined;
  /** True if it may be a warm one. */
  readonly mayBeWarm?: boolean;
  /** Undefined: a copy of the current database, which is served meanwhile. */
  readonly fill?: Fill;
}

/** What a run works with, beside its goal. */
export interface RunPlan {
  readonly placement?: Placement;
  /** An existing database. */
  readonly target?: TenantDatabase;
  readonly keptBy?: KeptBy | 'lost';
  /** How long the former database is kept. */
  readonly keepSeconds?: number;
  /** Maximum estimated wait of requests, in ms. */
  readonly maxPauseMs?: number;
}
