import { type MoveGoal, type MoveStep, moveProtocol } from '../../../src/operator/move/move-protocol.ts';
import type { MoveWorld } from './move-world.ts';
import type { SimulatedMove } from './simulated-moves.ts';

const maxAnnounceMs = 10_000;

/**
 * A run of the command line that works on a move. It can be killed, stopped and continued, and lose the control
 * database.
 */
export class SimulatedRun {
  state: 'running' | 'stopped' | 'ended' = 'running';
  readonly #world: MoveWorld;
  readonly #move: SimulatedMove;
  readonly #epoch: number;
  #steps: Generator<MoveStep, unknown, void>;
  #isConnected = true;
  #isRetreating = false;
  #copied = false;
  #delayed: (() => void)[] = [];

  /** Holds the lock of the tenant from now on. */
  constructor(world: MoveWorld, move: SimulatedMove, goal: MoveGoal) {
    this.#world = world;
    this.#move = move;
    world.control.lockedBy = this;
    this.#epoch = move.epoch = ++world.epochs;
    world.trace(() => `run ${this.#epoch} takes ${move.state} over, to ${goal}`);
    this.#steps = moveProtocol({ state: move.state, hasFence: world.control.fence !== 'none' }, goal);
    this.#next();
  }

  kill(): void {
    this.state = 'ended';
    this.#unlock();
  }

  /** Stops for some time. The server may take it for dead meanwhile. */
  stop(): void {
    const { random, scheduler, trace } = this.#world;
    trace(() => `stop run ${this.#epoch}`);
    this.state = 'stopped';
    if (random.chance(0.7)) this.disconnect();
    scheduler.after(random.between(50, 4_000), () => {
      if (this.state === 'stopped') this.continue();
    });
  }

  continue(): void {
    this.state = 'running';
    for (const event of this.#delayed.splice(0)) this.#deliver(event);
  }

  /** The server ends its connection to the control database, and with it the lock. The run does not notice. */
  disconnect(): void {
    this.#isConnected = false;
    this.#unlock();
  }

  #unlock(): void {
    if (this.#world.control.lockedBy === this) this.#world.control.lockedBy = undefined;
  }

  #deliver(event: () => void): void {
    if (this.state === 'running') event();
    else if (this.state === 'stopped') this.#delayed.push(event);
  }

  #next(): void {
    const { value: step, done } = this.#steps.next();
    if (done) {
      this.kill();
      return;
    }
    const { scheduler, random, source } = { ...this.#world, source: this.#move.from.rows };
    const isCopy = /copy/.test((step as MoveStep).kind);
    // A copy contains what was committed when it began.
    const snapshot = isCopy ? new Set(source) : source;
    const ms = isCopy ? random.between(20, 400) : random.between(0.5, 10);
    const fails = !this.#world.isCalm && random.chance(0.02);
    // Faults at random times would rarely meet the short steps.
    if (!this.#world.isCalm && random.chance(0.04)) this.stop();
    scheduler.after(ms, () => this.#deliver(() => this.#take(step as MoveStep, snapshot, fails)));
  }

  #take(step: MoveStep, snapshot: Set<number>, fails = false): void {
    try {
      if (fails) throw new Error('the step fails');
      if (this.#effect(step, snapshot) === 'again') {
        this.#world.scheduler.after(5, () => this.#deliver(() => this.#take(step, snapshot)));
        return;
      }
      this.#world.trace(() => `run ${this.#epoch}: ${step.kind}${step.kind === 'enter' ? ` ${step.to}` : ''}`);
    } catch (error) {
      this.#world.trace(() => `run ${this.#epoch}: ${step.kind} fails: ${(error as Error).message}`);
      const isReplaced = !this.#isConnected || this.#move.epoch !== this.#epoch;
      if (this.#isRetreating || isReplaced) {
        this.kill();
        return;
      }
      this.#isRetreating = true;
      this.#steps = moveProtocol(
        { state: this.#move.state, hasFence: this.#world.control.fence !== 'none' },
        'retreat',
      );
    }
    this.#next();
  }

  /** @returns `again` while the step waits */
  #effect(step: MoveStep, snapshot: Set<number>): 'again' | undefined {
    const { control } = this.#world;
    const { from, to } = this.#move;
    const epoch = this.#epoch;
    switch (step.kind) {
      case 'enter':
        this.#requireControl();
        control.enter(this.#move, epoch, step);
        if (step.to === 'fenced') this.#waitUntil = this.#world.scheduler.now + 2_000;
        return undefined;
      case 'claim source':
      case 'claim target': {
        const database = step.kind === 'claim source' ? from : to;
        database.guard(epoch);
        database.claimedBy = epoch;
        return undefined;
      }
      case 'create target':
        to.exists = true;
        return undefined;
      case 'announce fence':
        this.#requireControl();
        if (control.fence === 'none') {
          control.announce();
          this.#waitUntil = this.#world.scheduler.now + maxAnnounceMs;
        }
        if (this.#waitForProcesses() === undefined) return undefined;
        if (this.#world.scheduler.now > this.#waitUntil) throw new Error('a process does not confirm the fence');
        return 'again';
      case 'lift fence':
        this.#requireControl();
        control.lift();
        return undefined;
      case 'copy':
        to.guard(epoch);
        to.rows = snapshot;
        this.#copied = true;
        return undefined;
      case 'wait for processes':
        this.#requireControl();
        return this.#waitForProcesses() === 'again' && this.#world.scheduler.now < this.#waitUntil
          ? 'again'
          : undefined;
      case 'close source':
        from.guard(epoch);
        from.isOpen = false;
        return undefined;
      case 'end sessions':
        from.endSessions();
        return undefined;
      case 'copy changes':
        if (!this.#copied) throw new Error('nothing has been copied');
        to.guard(epoch);
        to.rows = snapshot;
        return undefined;
      case 'open target':
        to.guard(epoch);
        to.isOpen = true;
        return undefined;
      case 'close target':
        to.guard(epoch);
        to.isOpen = false;
        return undefined;
      case 'reopen source':
        from.guard(epoch);
        from.isOpen = true;
        return undefined;
      case 'drop target':
      case 'drop source': {
        const database = step.kind === 'drop target' ? to : from;
        if (database === control.current) this.#world.fail(`${database.name} is dropped and in use`);
        database.exists = false;
        database.endSessions();
        return undefined;
      }
    }
  }

  #waitUntil = 0;

  #waitForProcesses(): 'again' | undefined {
    const { control, processes } = this.#world;
    const isMissing = processes.some(process => process.isHeard && !control.acknowledged.has(process.name));
    return isMissing ? 'again' : undefined;
  }

  #requireControl(): void {
    if (!this.#isConnected) throw new Error('the connection to the control database is lost');
  }
}
