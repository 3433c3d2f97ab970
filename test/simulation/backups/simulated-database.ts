import type { ChangeCounters } from '../../../src/postgres/change-counters.ts';
import type { Random } from '../random.ts';

/** A session of a writer. Its committed changes are visible at once, and counted some time later. */
interface Session {
  uncommitted: number;
  uncounted: number;
}

/** A simulated tenant database: how many changes it has, and the counters that PostgreSQL keeps of them. */
export class SimulatedDatabase {
  readonly tenant: string;
  /** The changes that are visible. */
  committed = 0;
  #counted = 0;
  /** The start of the server, and the last reset of the counters. */
  #epoch = 0;
  readonly #sessions: Session[] = [];

  constructor(tenant: string) {
    this.tenant = tenant;
  }

  /** True if a session is connected (`numbackends`). */
  get isUsed(): boolean {
    return this.#sessions.length > 0;
  }

  /** @param isUsed as read before the counters */
  counters(isUsed: boolean): ChangeCounters {
    return { isUnused: !isUsed, fingerprint: `${this.#epoch} ${this.#counted}` };
  }

  /** Lets a writer take one step, or the server one of its own. */
  change(random: Random): void {
    const session = random.pick(this.#sessions);
    const steps: (() => void)[] = [
      () => this.#sessions.push({ uncommitted: 0, uncounted: 0 }),
      () => session && session.uncommitted++,
      () => session && session.uncommitted++,
      () => session && this.#commit(session),
      () => session && this.#commit(session),
      () => session && this.#count(session),
      () => session && this.#end(session),
      () => session && this.#end(session),
    ];
    random.pick(steps)?.();
    if (random.chance(0.02)) this.#crash();
    if (random.chance(0.02)) this.#reset();
  }

  /** Ends all sessions. */
  calm(): void {
    for (const session of [...this.#sessions]) this.#end(session);
  }

  #commit(session: Session): void {
    this.committed += session.uncommitted;
    session.uncounted += session.uncommitted;
    session.uncommitted = 0;
  }

  #count(session: Session): void {
    this.#counted += session.uncounted;
    session.uncounted = 0;
  }

  #end(session: Session): void {
    this.#count(session);
    this.#sessions.splice(this.#sessions.indexOf(session), 1);
  }

  /** The counters of a server that has crashed begin at 0. */
  #crash(): void {
    this.#sessions.length = 0;
    this.#reset();
  }

  #reset(): void {
    this.#counted = 0;
    this.#epoch++;
  }
}
