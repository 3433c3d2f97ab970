import type { Lease, ProcessWindows } from '../http/rate-limit/process-windows.ts';
import type { Rate, RateLimitResult } from '../http/rate-limit/sliding-window.ts';
import { noLeaseEnded } from './local-leases.ts';
import type { CountedCalls, CountResult } from './messages.ts';

interface LeasedWindowsOptions {
  windows: ProcessWindows;
  /** The number of workers. */
  workers: number;
  /** Asks a worker to give a lease back. @returns its unused calls; 0 when the worker does not respond */
  recall: (worker: number, key: string) => Promise<number>;
}

/** All leases together take at most this part of what is left of a limit. */
const leasedPart = 1 / 4;

/**
 * The windows of all workers, in the primary process. A worker that is called often by one client leases calls: they
 * are counted in advance, and the worker makes them without a message.
 *
 *   I1: Every call that a worker allows is counted here, before it is allowed, as of the time of the call or later. (A
 *       lease is counted as of its end, and the worker makes its calls until then.) So the invariants of the windows
 *       hold.
 *   I2: A call is rejected only when as many as the rate allows are made: before a rejection, the leases of all other
 *       workers are recalled. The lease of a worker that does not respond, or that has died, counts as used.
 */
export class LeasedWindows {
  readonly #options: LeasedWindowsOptions;
  /** By key and worker. A worker has at most one lease of a key. */
  readonly #leases = new Map<string, Map<number, Lease>>();

  constructor(options: LeasedWindowsOptions) {
    this.#options = options;
  }

  /** Counts the calls of a worker that arrived in one message. */
  countAll(worker: number, calls: readonly CountedCalls[]): CountResult[] | Promise<CountResult[]> {
    const results = calls.map(each => this.#count(worker, each));
    return results.some(result => result instanceof Promise) ? Promise.all(results) : (results as CountResult[]);
  }

  /** Forgets the leases of a worker that has ended. */
  end(worker: number): void {
    for (const key of this.#leases.keys()) this.#forget(key, worker);
  }

  #count(worker: number, counted: CountedCalls): CountResult | Promise<CountResult> {
    const { windows } = this.#options;
    const [key, max, windowMs, calls, , unused] = counted;
    const rate: Rate = { max, windowMs };
    if (unused !== noLeaseEnded) this.#giveBack(key, worker, unused);
    if (calls === 0) return toResult(windows.peek(key, rate));
    const { remaining } = windows.peek(key, rate);
    if (remaining >= calls || !this.#leases.has(key)) return this.#hit(worker, counted, rate);
    return this.#recallAll(key).then(() => this.#hit(worker, counted, rate));
  }

  #hit(worker: number, [key, , , calls, wanted]: CountedCalls, rate: Rate): CountResult {
    const { windows, workers } = this.#options;
    const first = windows.hit(key, rate, calls);
    const left = first.remaining - calls;
    const mayLease = Math.min(wanted, Math.floor((left * leasedPart) / workers));
    if (mayLease <= 0) return toResult(first);
    const lease = windows.lease(key, rate, mayLease);
    if (lease.calls > 0) this.#leasesOf(key).set(worker, lease);
    return toResult(first, lease.calls);
  }

  async #recallAll(key: string): Promise<void> {
    await Promise.all(
      [...(this.#leases.get(key)?.keys() ?? [])].map(async worker => {
        this.#giveBack(key, worker, await this.#options.recall(worker, key));
      }),
    );
  }

  #giveBack(key: string, worker: number, unused: number): void {
    const lease = this.#leases.get(key)?.get(worker);
    if (!lease) return;
    this.#options.windows.giveBack(key, Math.min(unused, lease.calls), lease);
    this.#forget(key, worker);
  }

  #forget(key: string, worker: number): void {
    const leases = this.#leases.get(key);
    leases?.delete(worker);
    if (leases?.size === 0) this.#leases.delete(key);
  }

  #leasesOf(key: string): Map<number, Lease> {
    const leases = this.#leases.get(key) ?? new Map<number, Lease>();
    this.#leases.set(key, leases);
    return leases;
  }
}

function toResult({ remaining, resetMs }: RateLimitResult, leased = 0): CountResult {
  return [remaining, resetMs, leased];
}
