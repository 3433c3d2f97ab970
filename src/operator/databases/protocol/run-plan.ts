import type { Server } from '../../../control/control-entities.ts';
import type { Fill } from '../copy/fill-database.ts';
import type { DatabaseAddress, KeptBy, TenantDatabase } from '../store/database-store.ts';

/** A new database: its server, the version of its data, and its source. */
interface Placement {
  readonly server: Server;
  readonly origin: string;
  /** The last migration of its data; undefined: that of this build. */
  readonly version?: string | undefined;
  /**
   * The work that fills the database; undefined: a copy of the current database, which is
   * served meanwhile.
   */
  readonly fill?: Fill;
  /** The copy that fills it; undefined: rows of this command, such as those of a manifest. */
  readonly copy?: PlacedCopy | undefined;
}

/** The size of a copy, for the room of its server. */
export interface PlacedCopy {
  /** The size of the database with the copy, about. */
  readonly bytes: number;
  /** Takes a sentence if there is no room, and the copy is made; undefined: it is refused. */
  readonly warn?: ((text: string) => void) | undefined;
}

/** The options of a run, beside its goal. */
export interface RunPlan {
  readonly placement?: Placement;
  /** An existing database. */
  readonly target?: TenantDatabase;
  readonly keptBy?: KeptBy | 'lost';
  /** The seconds for which the former database is kept. */
  readonly keepSeconds?: number;
  /** Maximum estimated wait of requests, in ms. */
  readonly maxPauseMs?: number;
  /** True to drop what this run condemns also with tables of others (`dropDatabase`). */
  readonly leaveSchemas?: boolean;
  /** True to end sessions of others in the databases of the run. */
  readonly endSessions?: boolean;
  /**
   * The current database, which is opened although another one has taken its place, and that
   * other one, if its server is known.
   */
  readonly former?: { readonly replacedBy: DatabaseAddress | undefined };
}

/**
 * The time beyond its maximum pause after which the connections of a run are broken off behind
 * the fence. Waits for locks and sessions end earlier, so a server must be silent.
 */
const maxSpareMs = 10_000;

/** The time for which the requests of a tenant wait behind the fence of a run. */
export class RunPause {
  #begunAt: number | undefined;
  #ms: number | undefined;
  #overdue: NodeJS.Timeout | undefined;

  /**
   * Begins when the fence is about to be closed.
   * @param maxMs maximum estimated pause
   * @param onOverdue called when the pause has not ended long after that time
   */
  begin(maxMs = 0, onOverdue: () => void): void {
    this.#begunAt = performance.now();
    this.#overdue = setTimeout(onOverdue, maxSpareMs + maxMs);
  }

  /**
   * Ends when the fence is lifted.
   * @returns the time that requests have waited, at most, in ms; 0 if the pause has not begun
   */
  end(): number {
    this.stopTimer();
    if (this.#begunAt !== undefined) this.#ms ??= this.ms;
    return this.ms;
  }

  stopTimer(): void {
    clearTimeout(this.#overdue);
  }

  /**
   * The time that requests have waited until now, or until the end; 0 before the fence closes.
   */
  get ms(): number {
    return (
      this.#ms ?? (this.#begunAt === undefined ? 0 : Math.round(performance.now() - this.#begunAt))
    );
  }
}
