import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { describeError } from '../log/describe-error.ts';
import { type CountedRequest, UsageCounts } from './usage-counts.ts';
import type { UsageBatch, UsageStore } from './usage-store.ts';

interface UsageRecorderOptions {
  store: Pick<UsageStore, 'write'>;
  log: Pick<Logger, 'warn' | 'error'>;
  /** Unix time in milliseconds. */
  now: () => number;
  /** Default: 10 s. */
  intervalMs?: number | undefined;
}

const defaultIntervalMs = 10_000;
/** A statement with so many counts takes about 20 ms, during which others may need its connection. */
const maxCounts = 1_000;
const maxStopMs = 5_000;

/**
 * Counts what tenants use in memory, and adds it to the control database every 10 s and at the stop. No
 * request waits for that or fails because of it.
 *
 * Each request is written exactly once:
 *
 * 1. `take` moves counts out of `UsageCounts`, so each count is in one batch.
 * 2. A batch keeps its number and its counts until the control database has confirmed it. Until then it is sent again,
 *    and later batches wait. So an outage of the control database loses nothing.
 * 3. The control database stores the number with the counts in one statement, and ignores a number that is not above
 *    the last one. So a batch whose confirmation was lost counts once.
 *
 * A killed process loses what it had not written: the requests of at most 10 s while the control database responds. Its
 * row in `usage_writers` shows that: it has no end, and says until when requests are counted.
 */
export class UsageRecorder {
  readonly #options: UsageRecorderOptions;
  readonly #counts: UsageCounts;
  /** Batches that are not confirmed. */
  #batches: UsageBatch[] = [];
  #lastNumber = 0;
  #countedUntil: number;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> = Promise.resolve();
  #isFailing = false;

  constructor(options: UsageRecorderOptions) {
    this.#options = options;
    this.#counts = new UsageCounts(options.now);
    this.#countedUntil = options.now();
  }

  /** Requests that are counted and not known to be written. */
  get unwritten(): number {
    const requests = this.#batches.flatMap(({ counts }) => counts.map(each => each.requests));
    return requests.reduce((sum, each) => sum + each, this.#counts.requests);
  }

  /** Registers the process in the control database, so that it is known if it is killed before its first batch. */
  async start(): Promise<void> {
    await this.write();
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

  /** Writes what was counted before, once earlier calls have ended. Never rejects: the next call tries again. */
  write(): Promise<void> {
    this.#writing = this.#writing.then(() => this.#write(false));
    return this.#writing;
  }

  /** Writes the rest, for at most 5 s. Logs how many requests are lost if that fails. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    const last = this.#writing.then(async () => {
      if (this.#batches.length > 0) await this.#write(false);
      await this.#write(true);
      if (this.#batches.length > 0) await this.#write(true); // the connection may have been dead
    });
    await Promise.race([last, delay(maxStopMs, undefined, { ref: false })]);
    const requests = this.unwritten;
    if (requests > 0)
      this.#options.log.error({ event: 'usage_lost', requests }, 'requests are missing in the recorded usage');
  }

  async #write(isLast: boolean): Promise<void> {
    if (this.#batches.length === 0) this.#takeBatches(isLast);
    try {
      for (let batch = this.#batches[0]; batch; batch = this.#batches[0]) {
        await this.#options.store.write(batch);
        this.#batches.shift();
      }
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing)
        this.#options.log.warn(
          { event: 'usage_not_written', err: describeError(error) },
          'the usage of tenants stays in memory until the control database stores it',
        );
      this.#isFailing = true;
    }
  }

  /** Makes batches of all counts; one at least, which shows that the process runs. */
  #takeBatches(isLast: boolean): void {
    const before = this.#countedUntil;
    const counts = this.#counts.take();
    this.#countedUntil = this.#options.now();
    for (let at = 0; at < counts.length || at === 0; at += maxCounts) {
      const isEnd = at + maxCounts >= counts.length;
      this.#batches.push({
        number: ++this.#lastNumber,
        counts: counts.slice(at, at + maxCounts),
        countedUntil: isEnd ? this.#countedUntil : before,
        isLast: isEnd && isLast,
      });
    }
  }
}
