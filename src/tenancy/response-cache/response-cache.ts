import type { Announce } from '../../control/announcer.ts';
import type { ChangeFeed } from '../../control/change-feed.ts';
import { changeTopics } from '../../control/change-topics.ts';
import type { TenantRecord } from '../../control/records.ts';
import { Representation } from '../../lib/http/response/representation.ts';
import type { RowValues } from '../../lib/postgres/statement.ts';
import { isOutcomeUnknown } from '../../lib/problems.ts';
import { type Deadline, requestDeadlineMs, withDeadline } from '../../lib/runtime/deadline.ts';
import { within } from '../../lib/runtime/within.ts';
import type { CacheableRows } from '../connections/tenant-reads.ts';
import { ResponseStore } from './response-store.ts';

/**
 * Returns the value to encode, or the promise of a `Representation`.
 * @throws the problem that the client receives when the rows contain no response
 */
type ToResponse<Row extends object> = (rows: Row[]) => unknown;

interface ResponseCacheOptions {
  feed: ChangeFeed;
  announce: Announce;
  /** Limit of the memory, in bytes. One tenant takes at most a sixteenth of it. */
  maxBytes: number;
  /** A monotonic clock in milliseconds. */
  now?: (() => number) | undefined;
}

/**
 * The bounds of the age at which a cached response expires, in ms. Each response has a random
 * one, so that responses that were read together do not expire together.
 */
const minAgeMs = 50_000;
const maxAgeMs = 60_000;
/** Maximum wait of the response to a change for the announcement of the change, in ms. */
const maxAnnounceMs = 250;
/**
 * The time after which a change whose commit got no reply is announced once more, in ms: the
 * commit may take effect late.
 */
const announceAgainMs = 10_000;

/**
 * Serves responses from memory, as the bytes that are sent. It caches only responses that are
 * the same for every caller who has the permission, made of rows of their own resource's table.
 *
 * A response counts only for the tenant record with which it was read (`ResponseStore`). The
 * process of a change serves nothing older from the moment it has responded to it. Another
 * process does so within a second, and at the age of a minute at the latest; SECURITY.md has
 * the cases. Why that holds:
 *
 *   - A change that may have been committed is announced after its commit, and the process that
 *     receives the announcement, as the process of the change itself, drops its cached
 *     responses of the resource.
 *   - A read that is under way at that moment is not stored, because its `CachedResource` is no
 *     longer in the store. A read that begins afterwards sees the change, unless it reads from
 *     a standby; such a read is not stored.
 *   - While announcements may not arrive (`ChangeFeed.current`), nothing is served from memory.
 *   - A change that is not announced, such as one by psql, or by a process that died after its
 *     commit, shows at the latest when the responses expire.
 */
export class ResponseCache {
  /**
   * Counts since the start of the process: responses served from memory, and responses that
   * were read.
   */
  readonly counts = { hits: 0, misses: 0 };
  readonly #feed: ChangeFeed;
  readonly #announce: Announce;
  readonly #now: () => number;
  readonly #store: ResponseStore<Representation>;

  constructor({ feed, announce, maxBytes, now = () => performance.now() }: ResponseCacheOptions) {
    this.#feed = feed;
    this.#announce = announce;
    this.#now = now;
    this.#store = new ResponseStore(maxBytes);
    feed.subscribe(changeTopics.responses, key => this.#store.remove(key));
  }

  /** Memory of the cached responses, in bytes. */
  get bytes(): number {
    return this.#store.bytes;
  }

  /** Returns a cached response; undefined when there is none that may be served. */
  find(tenant: TenantRecord, resource: string, key: string): Representation | undefined {
    if (!this.#feed.current) return undefined;
    const response = this.#store.find(tenant, resource, key);
    if (!response || this.#now() > response.expiresAt) return undefined;
    this.counts.hits++;
    return response.representation;
  }

  /**
   * Reads a response, or waits for the same read of another request, and stores it if its rows
   * may be cached.
   * @param read gets a deadline when requests share the read, and none when it is the request's
   *   own
   * @throws what `toResponse` throws
   */
  async load<Row extends object = RowValues>(
    tenant: TenantRecord,
    resource: string,
    key: string,
    read: (deadline?: Deadline) => Promise<CacheableRows<Row>>,
    toResponse: ToResponse<Row>,
  ): Promise<Representation> {
    this.counts.misses++;
    if (!this.#feed.current) return represent((await read()).rows, toResponse);

    const cached = this.#store.resource(tenant, resource);
    const underWay = cached.loading.get(key);
    if (underWay !== undefined) return underWay;

    const loading = withDeadline(requestDeadlineMs, async deadline => {
      const expiresAt = this.#now() + minAgeMs + Math.random() * (maxAgeMs - minAgeMs);
      const { rows, isCacheable } = await read(deadline);
      const representation = await represent(rows, toResponse);

      const response = { representation, codedBytes: 0, expiresAt };
      if (isCacheable && this.#store.set(tenant, resource, cached, key, response)) {
        representation.onGrowth = bytes => this.#store.grow(tenant, resource, key, response, bytes);
      }
      return representation;
    }).finally(() => cached.loading.delete(key));
    cached.loading.set(key, loading);
    return loading;
  }

  /**
   * Makes a change, and removes the cached responses of its resource in every process.
   * @param resource undefined: its responses are not cached
   * @param change calls `beforeCommit` when its checks have passed
   * @throws what `change` throws; an announcement that fails refuses no change
   */
  async changing<T>(
    { guid }: TenantRecord,
    resource: string | undefined,
    change: (beforeCommit: () => void) => Promise<T>,
  ): Promise<T> {
    if (resource === undefined) return change(() => {});

    const key = `${guid}/${resource}`;
    try {
      const result = await change(() => this.#store.remove(key));
      await this.#invalidate(key);
      return result;
    } catch (error) {
      if (isOutcomeUnknown(error)) {
        // Not awaited: the request is at its deadline.
        void this.#invalidate(key);
        setTimeout(() => void this.#invalidate(key), announceAgainMs).unref();
      }
      throw error;
    }
  }

  /**
   * Removes the responses of this process, and announces the change. Resolves after 250 ms at
   * the latest; never rejects.
   */
  async #invalidate(key: string): Promise<void> {
    this.#store.remove(key);
    await within(this.#announce(changeTopics.responses, key), maxAnnounceMs).catch(() => {});
  }
}

/** @throws what `toResponse` throws */
export async function represent<Row extends object>(
  rows: Row[],
  toResponse: ToResponse<Row>,
): Promise<Representation> {
  const response = await toResponse(rows);
  return response instanceof Representation ? response : Representation.of(response);
}
