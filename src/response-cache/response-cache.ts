import type { ReadResult } from '../connections/tenant-driver.ts';
import type { Announce } from '../control/announcer.ts';
import type { ChangeFeed } from '../control/change-feed.ts';
import type { TenantRecord } from '../control/directory.ts';
import { Representation } from '../http/representation.ts';
import type { RowValues } from '../postgres/table-statements.ts';
import { type CachedResource, type CachedResponse, ResponseStore } from './response-store.ts';
import type { WriteMonitor } from './write-monitor.ts';

/** @throws what a client is told when there is no answer in the rows */
type ToAnswer = (rows: RowValues[]) => unknown;

interface Loaded {
  readonly cacheable: boolean;
  readonly represent: () => Representation;
}

interface ResponseCacheOptions {
  feed: ChangeFeed;
  announce: Announce;
  /** Knows which databases nobody has written to. */
  watch: Pick<WriteMonitor, 'unchangedUntil'>;
  /** Most memory, in bytes. One tenant has at most a sixteenth of it. */
  maxBytes: number;
  /** A clock in milliseconds that never goes back. */
  now?: (() => number) | undefined;
}

// Changes made behind the service's back show after the longest, or when an operator says so: it counts from when it was
// last known that there were none. What was read at the same time is not read again at the same time.
const ageMs = { least: 50_000, most: 60_000 };
const table = 'answers';

/**
 * Answers that are the same for every caller who may ask, kept as the bytes that leave, and served while they are known
 * to be current. Why they are:
 *
 *   a write is made under the resource's lock, which its connection takes, shared, and holds until there has been no
 *   further write for a moment (`HeldLocks`). When it has taken it, and before anything is committed, it announces the
 *   change to every process; the writes that follow under the same lock need not.
 *
 *   a read that is to be kept first looks whether any write holds the lock, then reads. When none did, the lock of every
 *   write that it did not see was taken after it began, and announced after that: it drops what the read keeps, or the
 *   read finds it gone already.
 *
 *   a read that is under way is shared with those who ask meanwhile when it is such a one. When it is not, it may be
 *   older than a change that they know of, and they read for themselves.
 *
 * So nothing old is ever kept beyond the announcement of what is new, whenever a process dies, and without any clock.
 * What is changed by other means nobody announces: for that, an answer lives for a minute, and begins anew as long as
 * `WriteWatch` proves that nobody has written to the database since it was read.
 * An announcement that is under way, and a feed that has been silent for less than a second, are the only delay; a
 * process obeys its own writes at once. While the feed is down nothing is served from here.
 */
export class ResponseCache {
  /**
   * How many answers came from here since the start of the process, how many had to be read, and how often one was not read
   * again because nobody had written to its database.
   */
  readonly counts = { hits: 0, misses: 0, revalidations: 0 };
  readonly #feed: ChangeFeed;
  readonly #announce: Announce;
  readonly #watch: ResponseCacheOptions['watch'];
  readonly #now: () => number;
  readonly #store: ResponseStore<Loaded>;

  constructor({ feed, announce, watch, maxBytes, now = () => performance.now() }: ResponseCacheOptions) {
    this.#feed = feed;
    this.#announce = announce;
    this.#watch = watch;
    this.#now = now;
    this.#store = new ResponseStore(maxBytes);
    feed.subscribe(table, key => this.#store.drop(key));
  }

  /** Memory that the answers take, in bytes. */
  get bytes(): number {
    return this.#store.bytes;
  }

  /** The answer, when it is kept and known to be current. */
  find(tenant: TenantRecord, resource: string, key: string): Representation | undefined {
    if (!this.#feed.current) return undefined;
    const now = this.#now();
    const answer = this.#store.find(tenant, resource, key);
    if (!answer || (now > answer.expiresAt && !this.#prolong(answer, now))) return undefined;
    this.counts.hits++;
    return answer.representation;
  }

  /** Reads an answer and keeps it, if it may be kept. */
  async load(
    tenant: TenantRecord,
    resource: string,
    key: string,
    read: () => Promise<ReadResult>,
    toAnswer: ToAnswer,
  ): Promise<Representation> {
    this.counts.misses++;
    if (!this.#feed.current) return new Representation(toAnswer((await read()).rows));
    const earlier = await this.#store.resource(tenant, resource).loading.get(key);
    if (earlier?.cacheable) return earlier.represent();
    // What is being read now began after this request did, and so is good enough, cacheable or not.
    const kept = this.#store.resource(tenant, resource);
    let loading = kept.loading.get(key);
    if (!loading) {
      loading = this.#load(tenant, resource, key, kept, read, toAnswer).finally(() => kept.loading.delete(key));
      kept.loading.set(key, loading);
    }
    return (await loading).represent();
  }

  /** Before a change of a resource is committed: when this resolves, no process will serve what was before for long. */
  async invalidate(tenant: TenantRecord, resource: string): Promise<void> {
    const key = `${tenant.guid}/${resource}`;
    this.#store.drop(key);
    await this.#announce(table, key);
  }

  /** @returns whether it is known of a moment, not long ago, that nobody had changed what the answer was read from */
  #prolong(answer: CachedResponse, now: number): boolean {
    answer.expiresAt = this.#watch.unchangedUntil(answer.source, answer.readAt) + age();
    if (now > answer.expiresAt) return false;
    this.counts.revalidations++;
    return true;
  }

  async #load(
    tenant: TenantRecord,
    resource: string,
    key: string,
    kept: CachedResource<Loaded>,
    read: () => Promise<ReadResult>,
    toAnswer: ToAnswer,
  ): Promise<Loaded> {
    const readAt = this.#now();
    const { rows, cacheable, source } = await read();
    let representation: Representation;
    try {
      representation = new Representation(toAnswer(rows));
    } catch (error) {
      const represent = () => {
        throw error;
      };
      return { cacheable, represent };
    }
    if (cacheable)
      this.#store.set(tenant, resource, kept, key, { representation, source, readAt, expiresAt: readAt + age() });
    return { cacheable, represent: () => representation };
  }
}

function age(): number {
  return ageMs.least + Math.random() * (ageMs.most - ageMs.least);
}
