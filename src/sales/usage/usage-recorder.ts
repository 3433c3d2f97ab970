import type { Logger } from 'pino';
import { describeError } from '../../lib/log/describe-error.ts';
import { isOutcomeUnknown } from '../../lib/problems.ts';
import { atMost } from '../../lib/runtime/within.ts';
import { type CountedRequest, type TenantUsage, UsageCounts } from './usage-counts.ts';
import type { UsageStore } from './usage-store.ts';

interface UsageRecorderOptions {
  store: UsageStore;
  log: Pick<Logger, 'warn' | 'error'>;
  /** Unix time in milliseconds. */
  now: () => number;
  /** Default: a minute. */
  intervalMs?: number | undefined;
}

const defaultIntervalMs = 60_000;
/** One of so many writes also removes old hours. */
const writesForRemoval = 60;
const maxStopMs = 5_000;

/**
 * Counts what tenants use in memory, and adds it to the control database once a minute and at
 * the stop, in one statement. No request waits for that or fails because of it.
 *
 * Counts are written again only when the control database has certainly not stored them, as in
 * an outage. So a request counts twice in no invoice. A process that is killed loses the counts
 * of a minute, and so does a connection that breaks off while it commits.
 */
export class UsageRecorder {
  readonly #options: UsageRecorderOptions;
  readonly #counts: UsageCounts;
  /** Counts of the last write, which the control database has not stored. */
  #refused: readonly TenantUsage[] = [];
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #writes = 0;
  #isFailing = false;

  constructor(options: UsageRecorderOptions) {
    this.#options = options;
    this.#counts = new UsageCounts(options.now);
  }

  /** Requests that are counted and not written. */
  get unwritten(): number {
    return requestsOf(this.#refused) + this.#counts.requests;
  }

  start(): void {
    const run = (): void => void this.write();
    this.#timer = setInterval(run, this.#options.intervalMs ?? defaultIntervalMs).unref();
  }

  /** Counts a request of an authenticated caller of the tenant with this guid. */
  count(tenant: string, request: CountedRequest): void {
    this.#counts.count(tenant, request);
  }

  /** Adds the time in which a connection to the database of the tenant was in use. */
  addDatabaseTime(tenant: string, ms: number): void {
    this.#counts.addDatabaseTime(tenant, ms);
  }

  /**
   * Writes the counts of the time before the call, once earlier calls have ended. Never
   * rejects: the next call tries again.
   */
  write(): Promise<void> {
    this.#writing = this.#writing.then(() => this.#write());
    return this.#writing;
  }

  /** Writes the rest, for at most 5 s. Logs how many requests are lost if that fails. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    const last = this.write().then(() => {
      if (this.unwritten > 0) return this.write(); // the connection may have been dead
    });
    await atMost(last, maxStopMs);

    if (this.unwritten > 0) this.#logLost(this.unwritten);
  }

  async #write(): Promise<void> {
    const { store } = this.#options;
    try {
      if (this.#refused.length > 0) await this.#store(this.#refused);

      const counts = this.#counts.take();
      if (counts.length > 0) await this.#store(counts);

      if (this.#writes++ % writesForRemoval === 0) await store.removeOld();
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing) {
        this.#options.log.warn(
          { event: 'usage_not_written', err: describeError(error) },
          'the usage of tenants stays in memory until the control database stores it',
        );
      }
      this.#isFailing = true;
    }
  }

  /**
   * Keeps the counts for the next write if the control database has certainly not stored them.
   */
  async #store(counts: readonly TenantUsage[]): Promise<void> {
    this.#refused = [];
    try {
      await this.#options.store.write(counts);
    } catch (error) {
      if (isOutcomeUnknown(error)) this.#logLost(requestsOf(counts));
      else this.#refused = counts;
      throw error;
    }
  }

  #logLost(requests: number): void {
    this.#options.log.error(
      { event: 'usage_lost', requests },
      'requests may be missing in the recorded usage',
    );
  }
}

function requestsOf(counts: readonly TenantUsage[]): number {
  return counts.reduce((sum, { requests }) => sum + requests, 0);
}
