import { setTimeout as delay } from 'node:timers/promises';
import type { TenantDatabases } from '../connections/tenant-databases.ts';
import type { Directory } from '../control/directory.ts';
import type { UsageStore } from './usage-store.ts';

interface SizeSamplerOptions {
  store: Pick<UsageStore, 'claimSample' | 'releaseSamples' | 'recordSize' | 'removeOld'>;
  directory: Pick<Directory, 'tenant'>;
  databases: Pick<TenantDatabases, 'open' | 'usage'>;
}

const sampleMs = 1_000;
/** While there is nothing to sample, or another process samples. */
const idleMs = 10_000;
/** The start of the service needs its connections for requests. */
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
 * process that samples also removes old hours from the ledger.
 *
 * The size is read on a connection of the tenant, because the service has no other login that may. It is not read while
 * requests wait for connections. A tenant whose database does not respond has no size of that round: `doctor` says why.
 */
export class SizeSampler {
  readonly #options: SizeSamplerOptions;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #isStopped = false;
  #removedAt = Number.NEGATIVE_INFINITY;

  constructor(options: SizeSamplerOptions) {
    this.#options = options;
  }

  start(): void {
    this.#schedule(firstMs);
  }

  /** Samples one database, if it is the turn of this process. @returns false when there is nothing to sample now */
  async sample(): Promise<boolean> {
    const { store, directory, databases } = this.#options;
    if (databases.usage.waiting > 0) return false;
    const guid = await store.claimSample();
    if (guid === undefined) return false;
    await this.#removeOld();
    const tenant = await directory.tenant(guid);
    if (!tenant) return true;
    const [row] = await databases.open(tenant).read(databaseSize);
    await store.recordSize(guid, Number(row?.bytes));
    return true;
  }

  /** Lets another process sample. Resolves after 1 s at the latest, because the turn also ends by itself. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    const released = this.#running.then(() => this.#options.store.releaseSamples()).catch(() => {});
    await Promise.race([released, delay(maxStopMs, undefined, { ref: false })]);
  }

  #schedule(ms: number): void {
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => {
      this.#running = this.sample()
        .catch(() => true)
        .then(isMore => this.#schedule(isMore ? sampleMs : idleMs));
    }, ms).unref();
  }

  async #removeOld(): Promise<void> {
    const now = performance.now();
    if (now - this.#removedAt < removeEveryMs) return;
    this.#removedAt = now;
    await this.#options.store.removeOld();
  }
}
