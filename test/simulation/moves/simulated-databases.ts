import type { SimulatedSession } from '../serving-process.ts';

/** A database of the simulated tenant. */
export class SimulatedDatabase {
  readonly name: string;
  exists = true;
  /** True while its stamp names the tenant and the tenant's role may log in. */
  isOpen: boolean;
  /** True while its server does not answer. */
  isAway = false;
  /** The greatest epoch that has claimed it. */
  claimedBy = 0;
  rows = new Set<number>();
  readonly sessions = new Set<SimulatedSession>();

  constructor(name: string, isOpen: boolean) {
    this.name = name;
    this.isOpen = isOpen;
  }

  /** Opens a session; undefined when the database refuses it. */
  connect(): SimulatedSession | undefined {
    if (!this.exists || !this.isOpen || this.isAway) return undefined;
    const session = { isAlive: true };
    this.sessions.add(session);
    return session;
  }

  /** @throws while its server does not answer */
  reach(): void {
    if (this.isAway) throw new Error(`${this.name} is away`);
  }

  /** @throws when a later run has claimed the database, or its server does not answer */
  guard(epoch: number): void {
    this.reach();
    if (!this.exists) throw new Error(`${this.name} does not exist`);
    if (this.claimedBy > epoch) throw new Error(`${this.name} is claimed by a later run`);
  }

  /** Shuts earlier runs out. @throws as `guard` */
  claim(epoch: number): undefined {
    this.guard(epoch);
    this.claimedBy = epoch;
  }

  /** Lets logins of the tenant in, or does not. @throws as `guard` */
  open(epoch: number, isOpen: boolean): undefined {
    this.guard(epoch);
    this.isOpen = isOpen;
  }

  /** Its server dies, or is back. */
  setAway(isAway: boolean): void {
    this.isAway = isAway;
    if (isAway) this.endSessions();
  }

  endSessions(): void {
    for (const session of this.sessions) session.isAlive = false;
    this.sessions.clear();
  }
}
