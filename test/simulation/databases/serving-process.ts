import { violation } from '../violation.ts';
import type { DatabaseWorld, SimulatedSession, TenantDatabase } from './database-world.ts';

const maxWaitMs = 5_000;
/** Longer than in production, where a request waits for a notification: many poll at once. */
const pollMs = 40;

/**
 * A process of the service, with clients that write. It knows the tenant's database and its
 * fence by notifications.
 */
export class ServingProcess {
  readonly name: string;
  readonly #world: DatabaseWorld;
  #database: TenantDatabase;
  #isFenced = false;
  #running = 0;
  #state: 'running' | 'stopped' | 'dead' = 'running';
  #stoppedAt = 0;
  readonly #delayed: (() => void)[] = [];

  constructor(world: DatabaseWorld, name: string) {
    this.#world = world;
    this.name = name;
    this.#database = world.control.current;
    this.notify(); // it reads the fences when it starts
    this.#write();
  }

  get isDead(): boolean {
    return this.#state === 'dead';
  }

  /** True while the heartbeat of the process is recent. */
  get isHeard(): boolean {
    if (this.#state === 'running') return true;
    return this.#world.scheduler.now - this.#stoppedAt < 3_000;
  }

  kill(): void {
    this.#state = 'dead';
    this.#stoppedAt = this.#world.scheduler.now;
  }

  stop(): void {
    this.#state = 'stopped';
    this.#stoppedAt = this.#world.scheduler.now;
  }

  continue(): void {
    if (this.#state !== 'stopped') return;
    this.#state = 'running';
    while (this.#delayed.length > 0 && this.#state === 'running') this.#delayed.shift()?.();
  }

  /** The control database has changed. */
  notify(): void {
    const { scheduler, random, isCalm } = this.#world;
    const ms = !isCalm && random.chance(0.05) ? random.between(100, 900) : random.between(0.5, 10);
    scheduler.after(ms, () => this.#deliver(() => this.#reload()));
  }

  #deliver(event: () => void): void {
    if (this.#state === 'running') event();
    else if (this.#state === 'stopped') this.#delayed.push(event);
  }

  #reload(): void {
    const { control, scheduler, random } = this.#world;
    if (control.isAway) return;
    this.#isFenced = control.fence === 'closed';
    if (!this.#isFenced) this.#database = control.current;
    if (control.fence === 'none') return;
    const [fence, id] = [control.fence, control.fenceId];
    const acknowledge = (): void => {
      if (control.fence !== fence || control.fenceId !== id) return;
      if (fence === 'closed' && this.#running > 0) {
        scheduler.after(5, () => this.#deliver(acknowledge));
      } else {
        control.acknowledged.add(this.name);
      }
    };
    scheduler.after(random.between(0.5, 5), () => this.#deliver(acknowledge));
  }

  #write(): void {
    const { scheduler, random } = this.#world;
    scheduler.after(random.between(5, 60), () => {
      if (this.isDead) return;
      this.#deliver(() => {
        this.#begin(++this.#world.writes, scheduler.now + maxWaitMs);
        this.#write();
      });
    });
  }

  #begin(id: number, until: number): void {
    const { scheduler, control } = this.#world;
    const again = (): void => {
      if (scheduler.now > until) this.#world.failed++;
      else scheduler.after(pollMs, () => this.#deliver(() => this.#begin(id, until)));
    };

    if (this.#isFenced) {
      again();
      return;
    }

    const database = this.#database;
    const session = database.connect();
    if (session) {
      this.#running++;
      this.#commitLater(id, database, session);
      return;
    }

    this.#reload(); // reads the control database
    const isCurrent = !this.#isFenced && this.#database === database && control.fence !== 'closed';
    if (isCurrent && !control.isAway) this.#world.failed++;
    else again();
  }

  #commitLater(id: number, database: TenantDatabase, session: SimulatedSession): void {
    const { scheduler, random, isCalm } = this.#world;
    const ms = !isCalm && random.chance(0.02) ? random.between(500, 6_000) : random.between(1, 100);
    scheduler.after(ms, () =>
      this.#deliver(() => {
        this.#running--;
        database.sessions.delete(session);
        if (!session.isAlive) {
          this.#world.failed++;
          return;
        }
        if (database.rows.has(id)) violation(`write ${id} is done twice`);
        database.rows.add(id);
        this.#world.giveNumber(database);
        this.#world.acknowledge(id, database);
      }),
    );
  }
}
