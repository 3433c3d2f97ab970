import type { RestoreView } from '../../../src/operator/restore/restore-protocol.ts';
import { FencedControl } from '../fenced-control.ts';
import type { ServedDatabase, ServingProcess, ServingWorld, SimulatedSession } from '../serving-process.ts';

/** A database that the tenant has, had, or may get. */
export class RestoredDatabase implements ServedDatabase {
  readonly name: string;
  exists: boolean;
  /** Whom its stamp names. */
  stamp: 'tenant' | 'side' | 'nobody';
  isLoginOpen = true;
  /** The greatest epoch that has claimed it. */
  claimedBy = 0;
  /** The archive that it was filled from; undefined: it is empty, or the first one of the tenant. */
  filledFrom: number | undefined;
  rows = new Set<number>();
  readonly sessions = new Set<SimulatedSession>();
  /** Sessions of the side, from a time when it was served. */
  readonly strangers = new Set<SimulatedSession>();

  constructor(name: string, stamp: 'tenant' | 'side') {
    this.name = name;
    this.stamp = stamp;
    this.exists = stamp === 'tenant';
  }

  get isOpen(): boolean {
    return this.exists && this.isLoginOpen && this.stamp === 'tenant';
  }

  connect(): SimulatedSession | undefined {
    return this.isOpen ? addTo(this.sessions) : undefined;
  }

  connectStranger(): SimulatedSession | undefined {
    return this.exists && this.stamp === 'side' ? addTo(this.strangers) : undefined;
  }

  /** @throws when a later run has claimed the database, or it names neither the tenant nor the side */
  guard(epoch: number): void {
    if (!this.exists) throw new Error(`${this.name} does not exist`);
    if (this.claimedBy > epoch) throw new Error(`${this.name} is claimed by a later run`);
    if (this.stamp === 'nobody') throw new Error(`${this.name} is condemned`);
  }

  /** Lets the stamp name an owner, and opens or closes the login. @throws as `guard` */
  give(epoch: number, stamp: 'tenant' | 'side', isLoginOpen: boolean): undefined {
    this.guard(epoch);
    this.stamp = stamp;
    this.isLoginOpen = isLoginOpen;
  }

  /** Lets the stamp name nobody, for ever. @throws unless it names the side or nobody, or as `guard` */
  condemn(epoch: number): undefined {
    if (!this.exists || this.stamp === 'nobody') return;
    this.guard(epoch);
    if (this.stamp === 'tenant') throw new Error(`${this.name} is the tenant's`);
    this.stamp = 'nobody';
  }

  /** Also the sessions of the side end. */
  drop(): void {
    this.exists = false;
    end(this.sessions);
    end(this.strangers);
  }
}

function addTo(sessions: Set<SimulatedSession>): SimulatedSession {
  const session = { isAlive: true };
  sessions.add(session);
  return session;
}

export function end(sessions: Set<SimulatedSession>): undefined {
  for (const session of sessions) session.isAlive = false;
  sessions.clear();
}

/** The side of the tenant in the simulated control database. */
export interface Side {
  database: RestoredDatabase;
  state: 'begun' | 'aside' | 'swapped';
  /** The archive that it is restored from. */
  readonly archive: number;
}

/** The locks of runs: of the slug of the side, and of the tenant and its side. */
export type LockName = 'slug' | 'pair';

/** The simulated control database, with the side of the tenant and the locks. */
export class RestoreControl extends FencedControl<RestoredDatabase> {
  side: Side | undefined;
  readonly locks = new Map<LockName, object>();

  get view(): RestoreView {
    return { state: this.side?.state ?? 'none', fence: this.fence };
  }
}

/** What the simulated runs and processes share. */
export interface RestoreWorld extends ServingWorld<RestoredDatabase> {
  readonly control: RestoreControl;
  readonly processes: readonly ServingProcess<RestoredDatabase>[];
  isCalm: boolean;
  epochs: number;
  /** Makes a database that does not exist yet. */
  newDatabase(): RestoredDatabase;
}
