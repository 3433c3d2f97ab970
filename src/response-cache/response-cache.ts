import type { ReadResult } from '../connections/tenant-reads.ts';
import type { Announce } from '../control/announcer.ts';
import type { ChangeFeed } from '../control/change-feed.ts';
import { changeTopics } from '../control/change-topics.ts';
import type { TenantRecord } from '../control/records.ts';
import { Representation } from '../http/representation.ts';
import type { RowValues } from '../postgres/statement.ts';
import { type Deadline, requestDeadlineMs, withDeadline } from '../runtime/deadline.ts';
import { type CachedResponse, ResponseStore } from './response-store.ts';
import type { WriteMonitor } from './write-monitor.ts';

/**
 * Returns the value to encode, or the promise of a `Representation`.
 * @throws the problem that the client receives when the rows contain no response
 */
type ToResponse = (rows: RowValues[]) => unknown;

interface LoadResult {
  readonly cacheable: boolean;
  /** Rejects with what `ToResponse` throws. */
  readonly representing: Promise<Representation>;
}

interface ResponseCacheOptions {
  feed: ChangeFeed;
  announce: Announce;
  /** Knows which databases have not been written to. */
  writeMonitor: Pick<WriteMonitor, 'unchangedUntil'>;
  /** Limit of the memory, in bytes. One tenant takes at most a sixteenth of it. */
  maxBytes: number;
  /** A monotonic clock in milliseconds. */
  now?: (() => number) | undefined;
  /** Returns a number from 0 up to, not including, 1; replaced in simulations. */
  random?: () => number;
}

/**
 * Maximum age of a cached response, in ms. The minimum leaves time for a proof: the connection that read the response
 * is closed after 30 s without use, and from then on a poll of the write monitor can prove the database unchanged. Each
 * response gets a random value in between, so that responses that were read together do not expire together.
 */
const minAgeMs = 50_000;
const maxAgeMs = 60_000;

/**
 * Serves responses from memory, as the bytes that are sent, while they are known to be current. It caches only
 * responses that are the same for every caller who has the permission.
 *
 * Invariants, each with the assumption that it depends on:
 *
 *   I1 (write) A write commits only while its connection holds the lock of the resource, shared, and only after the
 *      control database has accepted an announcement that was sent after the lock was acquired. Later writes of the
 *      same burst commit under the same lock and need no announcement of their own. Assumes: a cached response is made
 *      of rows of its own resource's table alone. All writes of the service to such a table take the lock by
 *      `WriteLocks.hold`, which releases it only when no transaction is open. When a connection ends, PostgreSQL
 *      releases its locks and rolls back its open transaction.
 *
 *   I2 (read) A cacheable read sees every write whose lock was acquired before the read checked the lock.
 *      Assumes: `TenantDriver.readCacheable` checks first and selects afterwards, and reports the read as cacheable
 *      only when the server was no standby when the connection was opened, and no connection held the lock, its own
 *      included. So each such write had released its lock, that is, had committed or failed, before the select took its
 *      snapshot.
 *
 *   I3 (store) A response is stored only in the `CachedResource` that was in the store before its read began. A process
 *      that sends or receives an announcement removes that object, with all its responses, from its store.
 *      Assumes: the object is fetched before the query is sent, and `ResponseStore.set` compares objects by identity.
 *
 *   I4 (delivery) A process receives an announcement within a second after the control database has accepted it, or
 *      serves nothing from memory until it has received it or has dropped everything. Assumes: `ChangeFeed.current` is
 *      true only if a query of the listening connection was sent less than a second ago and has been answered, and
 *      PostgreSQL delivers pending notifications before it completes that answer. After a reconnection the feed drops
 *      everything before `current` becomes true. Whether the connection receives what processes announce is tested
 *      every 10 s (`DeliveryCheck`); a fault in between, such as a failover that leaves the listening connection on
 *      the earlier primary, can break I4 for 15 s at most.
 *
 * Proof that a cached response R is served for at most a second after a write W that R does not contain:
 *
 *   1. By I2, W acquired its lock after R's read had checked the lock.
 *   2. By 1 and I1, the announcement for W's lock was sent after R's read began, and accepted before W committed.
 *   3. By 2 and I3, a process that receives this announcement removes R from its store, or never stores R.
 *   4. By 3 and I4, every process stops serving R at most a second after W committed. The process of W stops before W
 *      commits, because `invalidate` removes R from its own store before it sends the announcement.
 *
 * Steps 1 to 3 use no clock, and step 4 uses only the monotonic clock of one process. A process may die at any moment:
 * before its commit W does not happen (I1), and after it the announcement has been accepted.
 *
 *   I5 (sharing) A request that arrives during a read shares the result only if the read is cacheable: by steps 1 to 3,
 *      the announcement of a write that the read does not see also removes the read under way from the store, and later
 *      requests do not find it. A read that is not cacheable may be older than a write that the waiting request knows
 *      of. That request then shares or starts a read that began after its own arrival.
 *
 *   I6 (age) A change that is made outside the service (psql, replication) is not announced. It becomes visible after
 *      at most `maxAgeMs`, or at once after `tenant refresh`. The age of a response counts from its read, or from the
 *      latest moment until which `WriteMonitor` proves that the database has not changed since that read.
 */
export class ResponseCache {
  /**
   * Counts since the start of the process: responses served from memory, responses that were read, and expired
   * responses that were served without a query because the write monitor proved their database unchanged.
   */
  readonly counts = { hits: 0, misses: 0, revalidations: 0 };
  readonly #feed: ChangeFeed;
  readonly #announce: Announce;
  readonly #writeMonitor: ResponseCacheOptions['writeMonitor'];
  readonly #now: () => number;
  readonly #random: () => number;
  readonly #store: ResponseStore<LoadResult>;

  constructor(options: ResponseCacheOptions) {
    const { feed, announce, writeMonitor, maxBytes, now = () => performance.now(), random = Math.random } = options;
    this.#feed = feed;
    this.#announce = announce;
    this.#writeMonitor = writeMonitor;
    this.#now = now;
    this.#random = random;
    this.#store = new ResponseStore(maxBytes);
    feed.subscribe(changeTopics.responses, key => this.#store.drop(key));
  }

  /** Memory of the cached responses, in bytes. */
  get bytes(): number {
    return this.#store.bytes;
  }

  /** Returns a cached response that is known to be current; otherwise undefined. */
  find(tenant: TenantRecord, resource: string, key: string): Representation | undefined {
    if (!this.#feed.current) return undefined;
    const response = this.#store.find(tenant, resource, key);
    if (!response) return undefined;
    const now = this.#now();
    if (now > response.expiresAt && !this.#revalidate(response, now)) return undefined;
    this.counts.hits++;
    return response.representation;
  }

  /**
   * Reads a response, or waits for the same read of another request (I5), and stores it if the read is cacheable.
   * @param read gets a deadline when requests share the read, and none when it is the request's own
   * @throws what `toResponse` throws
   */
  async load(
    tenant: TenantRecord,
    resource: string,
    key: string,
    read: (deadline?: Deadline) => Promise<ReadResult>,
    toResponse: ToResponse,
  ): Promise<Representation> {
    this.counts.misses++;
    if (!this.#feed.current) return represent((await read()).rows, toResponse);
    const earlier = await this.#store.resource(tenant, resource).loading.get(key);
    if (earlier?.cacheable) return earlier.representing;
    // A read that is under way from here on began after this request arrived, so its result may be shared in any case.
    const cached = this.#store.resource(tenant, resource);
    let loading = cached.loading.get(key);
    if (!loading) {
      // Within one deadline, so that the result of a large read counts as memory until it has been encoded.
      loading = withDeadline(requestDeadlineMs, async deadline => {
        const readAt = this.#now();
        const { rows, cacheable, source } = await read(deadline);
        const representing = represent(rows, toResponse);
        const representation = await representing.catch(() => undefined);
        if (cacheable && representation) {
          const response = { representation, codedBytes: 0, source, readAt, expiresAt: readAt + this.#randomAge() };
          if (this.#store.set(tenant, resource, cached, key, response))
            representation.onGrowth = bytes => this.#store.grow(tenant, resource, key, response, bytes);
        }
        return { cacheable, representing };
      }).finally(() => cached.loading.delete(key));
      cached.loading.set(key, loading);
    }
    return (await loading).representing;
  }

  /** Must resolve before a change of the resource commits: announces the change to every process (I1). */
  async invalidate(tenant: TenantRecord, resource: string): Promise<void> {
    const key = `${tenant.guid}/${resource}`;
    this.#store.drop(key);
    await this.#announce(changeTopics.responses, key);
  }

  /** Extends the life of an expired response if its database is proved unchanged from its read until recently. */
  #revalidate(response: CachedResponse, now: number): boolean {
    response.expiresAt = this.#writeMonitor.unchangedUntil(response.source, response.readAt) + this.#randomAge();
    if (now > response.expiresAt) return false;
    this.counts.revalidations++;
    return true;
  }

  #randomAge(): number {
    return minAgeMs + this.#random() * (maxAgeMs - minAgeMs);
  }
}

/** @throws what `toResponse` throws */
export async function represent(rows: RowValues[], toResponse: ToResponse): Promise<Representation> {
  const response = await toResponse(rows);
  return response instanceof Representation ? response : Representation.of(response);
}
