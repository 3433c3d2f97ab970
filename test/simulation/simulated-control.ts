import type { GrantReply, GrantRequest } from '../../src/budget/exchange-messages.ts';
import { applyChange, type GrantChange, type ServerGrants } from '../../src/budget/grants.ts';
import type { Scheduler } from './scheduler.ts';
import { Violation } from './violation.ts';

/** Less than the silence after which a grant is removed, by the tolerance of clocks and delays. */
const minSilenceMs = 2_400;

/** The control database: the grants of each server. It checks every change. */
export class SimulatedControl {
  readonly #scheduler: Scheduler;
  readonly #budgets: readonly number[];
  readonly #servers: ServerGrants[];
  /** How long the database had been up at the last exchange of each holder, by server and holder. */
  readonly #upAt = new Map<string, number>();
  #isUp = true;
  #changedAt = 0;
  #upMs = 0;

  constructor(scheduler: Scheduler, budgets: readonly number[]) {
    this.#scheduler = scheduler;
    this.#budgets = budgets;
    this.#servers = budgets.map(() => ({ version: 0, grants: [] }));
  }

  get isUp(): boolean {
    return this.#isUp;
  }

  set isUp(isUp: boolean) {
    this.#upMs = this.#upTime;
    this.#changedAt = this.#scheduler.now;
    this.#isUp = isUp;
  }

  grantsOf(server: number): ServerGrants {
    return this.#servers[server] as ServerGrants;
  }

  handle(server: number, request: Exclude<GrantRequest, { kind: 'find connections' }>): GrantReply {
    if (request.kind === 'read') return { kind: 'grants', server: this.grantsOf(server) };
    return { kind: this.write(server, request.change) ? 'written' : 'outdated' };
  }

  /** @returns false when the change was outdated */
  write(server: number, change: GrantChange): boolean {
    const before = this.grantsOf(server);
    if (change.version !== before.version) return false;
    const after = applyChange(before, change);
    const granted = after.grants.reduce((total, grant) => total + grant.granted + grant.reserved, 0);
    const budget = this.#budgets[server] as number;
    if (granted > budget) throw new Violation(`the grants of server ${server} sum to ${granted} of ${budget}`);
    for (const grant of after.grants)
      if (!Number.isInteger(grant.granted) || grant.granted < 0)
        throw new Violation(`server ${server} grants ${grant.granted} connections`);
    for (const holder of change.remove) this.requireSilence(server, holder, minSilenceMs);
    this.#upAt.set(`${server} ${change.own.holder}`, this.#upTime);
    this.#servers[server] = after;
    return true;
  }

  /** @throws {Violation} when the process had an exchange within this time, in which the database was up */
  requireSilence(server: number, holder: string, ms: number): void {
    const silentMs = this.#upTime - (this.#upAt.get(`${server} ${holder}`) ?? 0);
    if (silentMs < ms) throw new Violation(`${holder} was removed, or its connections ended, after ${silentMs} ms`);
  }

  /** Removes the grant of a process that ends cleanly. @returns false when the database is down */
  leave(server: number, holder: string): boolean {
    if (!this.#isUp) return false;
    const { version, grants } = this.grantsOf(server);
    this.#servers[server] = { version: version + 1, grants: grants.filter(grant => grant.holder !== holder) };
    return true;
  }

  get #upTime(): number {
    return this.#upMs + (this.#isUp ? this.#scheduler.now - this.#changedAt : 0);
  }
}
