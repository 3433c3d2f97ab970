import { FencedControl } from '../fenced-control.ts';
import type { ServedDatabase, ServingProcess, ServingWorld, SimulatedSession } from '../serving-process.ts';

/** A database that the tenant has, had, or may get. */
export class LosableDatabase implements ServedDatabase {
  readonly name: string;
  exists = false;
  /** The run whose data it was filled with; undefined: it is empty, or the first one of the tenant. */
  filledBy: number | undefined;
  /** True if a run made it that had lost its lock by then: nobody removes it. */
  isOrphan = false;
  rows = new Set<number>();
  readonly sessions = new Set<SimulatedSession>();

  constructor(name: string) {
    this.name = name;
  }

  connect(): SimulatedSession | undefined {
    if (!this.exists) return undefined;
    const session = { isAlive: true };
    this.sessions.add(session);
    return session;
  }

  /** Drops or loses it. */
  remove(): undefined {
    this.exists = false;
    for (const session of this.sessions) session.isAlive = false;
    this.sessions.clear();
  }
}

/**
 * The simulated control database. `current` is the database that processes serve the tenant from: while the tenant is
 * marked, it is one that does not exist.
 */
export class LostControl extends FencedControl<LosableDatabase> {
  /** The names of `tenants`. */
  named: LosableDatabase;
  isRestoring = false;
  /** The run that has the lock of the tenant. */
  holder: object | undefined;
  readonly #nowhere = new LosableDatabase('nowhere');

  constructor(first: LosableDatabase) {
    super(first);
    this.named = first;
  }

  mark(named: LosableDatabase): undefined {
    this.named = named;
    this.isRestoring = true;
    this.current = this.#nowhere;
    this.onChange();
  }

  serve(): undefined {
    this.isRestoring = false;
    this.current = this.named;
    this.onChange();
  }
}

/** What the simulated runs and processes share. */
export interface LostWorld extends ServingWorld<LosableDatabase> {
  readonly control: LostControl;
  readonly processes: readonly ServingProcess<LosableDatabase>[];
  isCalm: boolean;
  runs: number;
  /** Makes a database that does not exist yet, with a name of its own. */
  newDatabase(): LosableDatabase;
}
