import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { TenantDatabases } from '../connections/tenant-databases.ts';
import type { Directory } from '../control/directory.ts';
import { describeError } from '../log/describe-error.ts';
import type { UsageStore } from './usage-store.ts';

interface SizeSamplerOptions {
  store: Pick<UsageStore, 'startSample' | 'releaseSamples' | 'recordSize' | 'removeOld'>;
  directory: Pick<Directory, 'tenant'>;
  databases: Pick<TenantDatabases, 'open' | 'budgets'>;
  log: Pick<Logger, 'warn'>;
}

const sampleMs = 1_000;
/** Pause while there is nothing to sample, or another process samples. */
const idleMs = 10_000;
/** Longest pause while the control database does not respond; each attempt doubles the pause. */
const maxFailingMs = 300_000;
/** Pause before the first sample: the start of the service needs its connections for requests. */
const firstMs = 60_000;
const removeEveryMs = 60_000;
const maxStopMs = 1_000;

const databaseSize = {
  name: 'database_size',
  text: 'select pg_database_size(current_database()) as bytes',
  values: [],
};

/**
 * Samples the sizes of the tenants' databases, one after the other: at most one in a second over all processes, and
 * each at most once per round, of which one begins in an hour. A round over 10,000 tenants takes about 3 hours. The
 * process that samples also removes old hours.
 *
 * The size is read on a connection of the tenant, because the service has no other login that may. It is not read while
 * requests wait for connections. A tenant whose database does not respond has no size of that round: `doctor` says why.
 * An outage of the control database is logged once, and ends the sampling until an attempt succeeds.
 */
export class SizeSampler {
  readonly #options: SizeSamplerOptions;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #isStopped = false;
  #removedAt = Number.NEGATIVE_INFINITY;
  /** Attempts in a row that the control database has failed. */
  #failures = 0;

  constructor(options: SizeSamplerOptions) {
    this.#options = options;
  }

  start(): void {
    this.#schedule(firstMs);
  }

  /**
   * Samples one database, unless another process samples.
   * @returns false when there is nothing to sample now. Rejects when the control database does not respond
   */
  async sample(): Promise<boolean> {
    const { store, directory, databases } = this.#options;
    const guid = await store.startSample();
    if (guid === undefined) return false;
    await this.#removeOld();
    const tenant = await directory.tenant(guid);
    const bytes = tenant && (await readSize(databases, tenant));
    if (bytes !== undefined) await store.recordSize(guid, bytes);
    return true;
  }

  /** Samples one database, unless requests wait. Never rejects. @returns after how many milliseconds to do so again */
  async sampleNext(): Promise<number> {
    if (this.#options.databases.budgets.usage.waiting > 0) return idleMs;
    try {
      const isMore = await this.sample();
      this.#failures = 0;
      return isMore ? sampleMs : idleMs;
    } catch (error) {
      if (this.#failures === 0)
        this.#options.log.warn(
          { event: 'sizes_not_sampled', err: describeError(error) },
          'the sizes of databases are sampled again when the control database responds',
        );
      return Math.min(maxFailingMs, idleMs * 2 ** this.#failures++);
    }
  }

  /** Lets another process sample. Resolves after 1 s at the latest, because its right to sample also ends by itself. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    const released = this.#running.then(() => this.#options.store.releaseSamples()).catch(() => {});
    await Promise.race([released, delay(maxStopMs, undefined, { ref: false })]);
  }

  #schedule(ms: number): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => {
      this.#running = this.sampleNext().then(next => this.#schedule(next));
    }, ms).unref();
  }

  async #removeOld(): Promise<void> {
    const now = performance.now();
    if (now - this.#removedAt < removeEveryMs) return;
    this.#removedAt = now;
    await this.#options.store.removeOld();
  }
}

/** Returns the size of a tenant's database in bytes; undefined when it does not respond. */
async function readSize(
  databases: Pick<TenantDatabases, 'open'>,
  tenant: Parameters<TenantDatabases['open']>[0],
): Promise<number | undefined> {
  const rows = await databases
    .open(tenant)
    .reads.read(databaseSize)
    .catch(() => []);
  return rows[0] && Number(rows[0].bytes);
}
