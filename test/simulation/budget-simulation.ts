import { maxNested } from '../../src/budget/fair-shares.ts';
import type { ServerGrants } from '../../src/budget/grants.ts';
import { Random } from './random.ts';
import { Scheduler } from './scheduler.ts';
import { SimulatedProcess } from './simulated-process.ts';
import type { SimulatedServer } from './simulated-server.ts';
import { SimulatedWorld } from './simulated-world.ts';
import type { SimulationOptions } from './simulation-options.ts';
import { Violation } from './violation.ts';

const faultsMs = 20_000;
/** A shorter time without control database counts as silence. */
const minOutageMs = 3_000;
const maxProcesses = 5;
/** A share of a killed process must be usable again after this time. */
const recoveryMs = 5_000;
/**
 * A command must have what one task needs after this time, however busy the services are, and although another one that
 * starts at the same moment has its turn first.
 */
const commandMs = 6_000;
const commandsAtOnce = 8;
/** Commands that do little have ended after this time. */
const maxCommandsMs = 12_000;
/** A share of a stopped process must be usable again after this time. */
const stopRecoveryMs = 10_000;

/**
 * Simulates processes that share the connection budgets of one or two servers, with faults first and without them
 * at the end. The same seed gives the same run.
 * @throws {Violation} when an invariant is broken
 */
export function simulateBudget(options: SimulationOptions): void {
  new BudgetSimulation(options).run();
}

class BudgetSimulation {
  readonly #scheduler = new Scheduler();
  readonly #random: Random;
  readonly #world: SimulatedWorld;
  readonly #processes: SimulatedProcess[] = [];
  /** The connections and grants of each server at its last check. */
  readonly #checked: { grants: ServerGrants; version: number }[] = [];
  #names = 0;

  constructor({ seed, trace }: SimulationOptions) {
    this.#random = new Random(seed);
    const servers = this.#random.chance(0.2) ? 2 : 1;
    const budgets = Array.from({ length: servers }, () => this.#random.integer(4 * maxProcesses, 40));
    this.#world = new SimulatedWorld({ scheduler: this.#scheduler, random: this.#random, budgets, trace });
  }

  run(): void {
    for (let count = this.#random.integer(1, 4); count > 0; count--) this.#start();
    this.#scheduleFault();
    this.#advance(faultsMs);
    this.#calmDown();
    this.#advance(12_000);
    this.#checkEverybodyIsServed();
    const busy = this.#checkOneBusyProcess();
    this.#checkCommand();
    const next = this.#checkRecovery(busy, () => busy.kill(), recoveryMs);
    while (this.#live.length < 2) this.#start();
    this.#advance(2_000);
    this.#checkRecovery(next, () => next.stop(), stopRecoveryMs);
  }

  get #live(): SimulatedProcess[] {
    return this.#processes.filter(process => !process.isDead && !process.pools.every(pool => pool.hasLeft));
  }

  #start(kind: SimulatedProcess['kind'] = 'service'): SimulatedProcess {
    const process = new SimulatedProcess(this.#world, `${kind[0]}${String(this.#names++).padStart(3, '0')}`, kind);
    this.#processes.push(process);
    this.#world.trace(() => `start ${process.name}`);
    if (kind === 'service') this.#setRandomLoad(process);
    return process;
  }

  /** Starts a command, which needs a few connections for a while. */
  #runCommand(): void {
    const process = this.#start('command');
    for (const pool of process.pools) pool.load = this.#random.integer(0, 6);
    this.#later(this.#random.between(50, 8_000), () => process.leave());
  }

  #setRandomLoad(process: SimulatedProcess): void {
    for (const [server, pool] of process.pools.entries()) {
      const budget = this.#world.budgets[server] as number;
      pool.load = this.#random.chance(0.3) ? 0 : this.#random.integer(1, 2 * budget);
    }
  }

  /**
   * Runs the time on, and checks after every step that no server has more connections than its budget. A server whose
   * connections and grants are those of the last check has passed it.
   */
  #advance(ms: number): void {
    const { servers, control } = this.#world;
    this.#scheduler.runUntil(this.#scheduler.now + ms, () => {
      for (let server = 0; server < servers.length; server++) {
        const grants = control.grantsOf(server);
        const { version } = servers[server] as SimulatedServer;
        const checked = this.#checked[server];
        if (checked?.grants === grants && checked.version === version) continue;
        this.#checkServer(server);
        this.#checked[server] = { grants, version };
      }
    });
  }

  #checkServer(server: number): void {
    const total = (this.#world.servers[server]?.total ?? 0) - this.#reentries(server);
    const budget = this.#world.budgets[server] as number;
    if (total > budget) this.#fail(`server ${server} has ${total} connections of ${budget}`);
    this.#checkGrants(server);
  }

  /** Checks that no process has more connections than the control database grants it. */
  #checkGrants(server: number): void {
    const entries = this.#world.base(server) > 0 ? 1 : 0;
    const { grants } = this.#world.control.grantsOf(server);
    for (const { name } of this.#processes) {
      const { granted, reserved } = grants.find(({ holder }) => holder === name) ?? { granted: 0, reserved: 0 };
      const count = this.#world.servers[server]?.count(name) ?? 0;
      if (count > granted + Math.max(entries, reserved))
        this.#fail(`${name} has ${count} connections to server ${server}, and a grant of ${granted} and ${reserved}`);
    }
  }

  /**
   * Processes that lost their grant during a pause, and have connected to the control database again, without a turn.
   */
  #reentries(server: number): number {
    if (this.#world.base(server) === 0) return 0;
    const { grants } = this.#world.control.grantsOf(server);
    const counted = new Set(grants.filter(({ reserved }) => reserved > 0).map(({ holder }) => holder));
    return this.#processes.filter(
      ({ name, hasEntered, isLeaving }) =>
        hasEntered && !isLeaving && !counted.has(name) && this.#world.servers[server]?.count(name),
    ).length;
  }

  #scheduleFault(): void {
    this.#scheduler.after(this.#random.between(100, 1_200), () => {
      if (this.#world.isCalm) return;
      this.#fault();
      this.#scheduleFault();
    });
  }

  #fault(): void {
    const random = this.#random;
    const process = random.pick(this.#live.filter(({ isRunning }) => isRunning));
    const kind = random.integer(0, 10);
    if (kind <= 3 || !process) {
      for (const each of this.#live) if (random.chance(0.5)) this.#setRandomLoad(each);
    } else if (kind === 4) {
      this.#trace(`kill ${process.name}`);
      process.kill();
    } else if (kind === 5 || kind === 9) {
      this.#trace(`stop ${process.name}`);
      process.stop();
      this.#later(random.between(100, 10_000), () => {
        if (!process.isDead) process.continue();
      });
    } else if (kind === 6) {
      this.#trace(`cut off ${process.name}`);
      process.isConnected = false;
      this.#later(random.between(100, 10_000), () => {
        process.isConnected = true;
      });
    } else if (kind === 7 && this.#world.control.isUp && this.#scheduler.now < faultsMs - minOutageMs) {
      this.#trace('control database down');
      this.#world.control.isUp = false;
      this.#later(random.between(minOutageMs, 10_000), () => {
        this.#world.control.isUp = true;
      });
    } else if (kind === 8 && random.chance(0.5)) {
      this.#trace(`leave ${process.name}`);
      process.leave();
    }
    if (this.#live.length < maxProcesses && random.chance(0.3)) this.#start();
    if (this.#live.length < maxProcesses && random.chance(0.2)) this.#runCommand();
  }

  /** Ends a fault after some time, or when the calm begins. */
  #later(ms: number, end: () => void): void {
    this.#scheduler.after(Math.min(ms, faultsMs - this.#scheduler.now), end);
  }

  #calmDown(): void {
    this.#trace('calm');
    this.#world.isCalm = true;
    for (const process of this.#live) if (process.kind === 'command') process.leave();
    while (this.#live.filter(({ isLeaving }) => !isLeaving).length < 2) this.#start();
    for (const process of this.#live) for (const pool of process.pools) pool.load = 1;
  }

  #checkEverybodyIsServed(): void {
    for (const process of this.#live)
      for (const [server, pool] of process.pools.entries()) pool.load = this.#world.budgets[server] as number;
    this.#advance(recoveryMs);
    const before = new Map(this.#live.flatMap(({ pools }) => pools.map(pool => [pool, pool.served])));
    this.#advance(2_000);
    for (const { name, pools } of this.#live)
      for (const [server, pool] of pools.entries()) {
        const share = Math.floor(this.#capacity(server) / this.#live.length);
        if (pool.holder.limit < share) this.#fail(`${name} has ${pool.holder.limit} of its share of ${share}`);
        if (pool.served === before.get(pool)) this.#fail(`no request of ${name} at server ${server} was served`);
      }
  }

  #checkOneBusyProcess(): SimulatedProcess {
    const busy = this.#random.pick(this.#live) as SimulatedProcess;
    for (const process of this.#live) if (process !== busy) for (const pool of process.pools) pool.load = 0;
    this.#advance(10_000);
    this.#requireNearlyAll(busy, 'the only busy process');
    return busy;
  }

  /** Runs two commands while all services are busy. */
  #checkCommand(): void {
    for (const process of this.#live)
      for (const [server, pool] of process.pools.entries()) pool.load = 2 * (this.#world.budgets[server] as number);
    this.#advance(3_000);
    const [first, second] = [this.#start('command'), this.#start('command')];
    for (const { pools } of [first, second]) for (const pool of pools) pool.load = maxNested;
    this.#advance(commandMs);
    for (const [server, pool] of first.pools.entries()) {
      const others = this.#live.length - 1; // each has one at least
      const share = Math.max(1, Math.min(maxNested, this.#capacity(server) - others));
      if (pool.holder.limit < share)
        this.#fail(`a command has ${pool.holder.limit} of ${share} connections to ${server}`);
    }
    for (const process of [first, second]) process.leave();
    this.#runCommandsAtOnce();
    for (const process of this.#live) for (const pool of process.pools) pool.load = 0;
    this.#advance(8_000);
  }

  /** Starts commands at the same moment while all services are busy, each of which soon ends. */
  #runCommandsAtOnce(): void {
    const commands = Array.from({ length: commandsAtOnce }, () => this.#start('command'));
    for (const command of commands) this.#scheduler.after(this.#random.between(100, 4_000), () => command.leave());
    this.#advance(maxCommandsMs);
    const rest = commands.filter(({ pools }) => !pools.every(pool => pool.hasLeft));
    if (rest.length > 0) this.#fail(`${rest.length} of ${commandsAtOnce} commands have not ended`);
  }

  /** Checks that another process gets the share of one that fails. @returns the other one */
  #checkRecovery(failed: SimulatedProcess, fail: () => void, ms: number): SimulatedProcess {
    for (const pool of failed.pools) pool.load = 100;
    this.#advance(2_000);
    this.#trace(`end of ${failed.name}`);
    fail();
    const others = this.#live.filter(process => process !== failed);
    const next = this.#random.pick(others) as SimulatedProcess;
    for (const [server, pool] of next.pools.entries()) pool.load = this.#world.budgets[server] as number;
    this.#advance(ms);
    this.#requireNearlyAll(next, `after ${ms} ms`, others.length);
    return next;
  }

  #requireNearlyAll({ name, pools }: SimulatedProcess, reason: string, live = this.#live.length): void {
    for (const [server, pool] of pools.entries()) {
      const capacity = this.#capacity(server, live);
      if (pool.holder.limit < 0.9 * capacity)
        this.#fail(`${reason}: ${name} has ${pool.holder.limit} of ${capacity} connections to server ${server}`);
      const { grants } = this.#world.control.grantsOf(server);
      if (grants.length !== live) this.#fail(`${reason}: ${grants.length} grants of server ${server}`);
    }
  }

  /** Connections that the live processes share. */
  #capacity(server: number, live = this.#live.length): number {
    const budget = this.#world.budgets[server] as number;
    return budget - this.#room(server) - live * this.#world.base(server);
  }

  #room(server: number): number {
    return Math.max(1, Math.floor((this.#world.budgets[server] as number) / 20));
  }

  #fail(text: string): never {
    throw new Violation(text);
  }

  #trace(text: string): void {
    this.#world.trace(() => text);
  }
}
