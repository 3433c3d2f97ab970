import { LRUCache } from 'lru-cache';
import { maxEntries } from '../lib/runtime/lru-bounds.ts';
import type { ChangeFeed } from './change-feed.ts';
import type { ChangeTopic } from './change-topics.ts';

interface CacheOptions<Value> {
  feed: ChangeFeed;
  /** Changes of this topic remove the entry with the same key. */
  topic: ChangeTopic;
  load: (key: string) => Promise<Value | undefined>;
  max: number;
  ttlMs: number;
  /**
   * Maximum keys that are remembered as absent, so that their next look-up needs no query.
   * Default 0: none.
   */
  maxAbsent?: number;
}

/**
 * A cached value, which a caller may hold instead of a look-up each time. It is current only
 * while the change feed is current.
 */
export interface CacheEntry<Value> {
  readonly value: Value | undefined;
  /**
   * True as soon as the cache has removed the entry. An expired entry is removed by the next
   * look-up of its key.
   */
  readonly removed: boolean;
}

interface Entry<Value> {
  readonly loading: Promise<Value | undefined>;
  /** The value; undefined until it is loaded. */
  value: Value | undefined;
  removed: boolean;
}

// entries live for minutes, so their age is computed from a clock that is read once a second
const clockMs = 1_000;

/**
 * Caches look-ups of the control database while the change feed is current.
 *
 * An entry holds the *promise* of a value from the moment of the first look-up. So concurrent
 * look-ups share one query, and a change that is announced while the query runs removes the
 * promise: a result that may be older than the change is never cached.
 */
export class ControlCache<Value extends object> {
  readonly #options: CacheOptions<Value>;
  readonly #entries: LRUCache<string, Entry<Value>>;
  readonly #absent: LRUCache<string, true>;
  #changeCount = 0;

  constructor(options: CacheOptions<Value>) {
    this.#options = options;
    this.#entries = new LRUCache({
      ...maxEntries(options.max),
      ttl: options.ttlMs,
      ttlResolution: clockMs,
      dispose: entry => {
        entry.removed = true;
      },
    });
    this.#absent = new LRUCache({ ...maxEntries(options.maxAbsent || 1), ttl: options.ttlMs });
    options.feed.subscribe(options.topic, key => this.invalidate(key));
  }

  /**
   * Returns the value of a key, from memory or from the database; undefined when it has none.
   * @throws what `load` throws
   */
  async get(key: string): Promise<Value | undefined> {
    const { feed, load, maxAbsent } = this.#options;
    if (!feed.current) return load(key);
    if (maxAbsent && this.#absent.has(key)) return undefined;
    const cached = this.#entries.get(key);
    if (cached !== undefined) return cached.loading;

    const entry = this.#add(key, load(key));
    try {
      entry.value = await entry.loading;
      if (entry.value === undefined && this.#remove(key, entry) && maxAbsent) {
        this.#absent.set(key, true);
      }
      return entry.value;
    } catch (error) {
      this.#remove(key, entry);
      throw error;
    }
  }

  /**
   * Returns the entry whose value `get` would return without a query; undefined when `get`
   * would need one.
   */
  getCached(key: string): CacheEntry<Value> | undefined {
    const entry = this.#options.feed.current ? this.#entries.get(key) : undefined;
    return entry?.value && entry;
  }

  /**
   * The number of changes that were received. Read it before the query whose result is passed
   * to `addIfUnchanged`.
   */
  get changeCount(): number {
    return this.#changeCount;
  }

  /**
   * Adds a value that was loaded by another query, unless a change was received since
   * `changeCount` had this value.
   */
  addIfUnchanged(key: string, value: Value, changeCount: number): void {
    if (
      this.#options.feed.current &&
      this.#changeCount === changeCount &&
      !this.#entries.has(key)
    ) {
      this.#add(key, Promise.resolve(value), value);
    }
  }

  #add(key: string, loading: Entry<Value>['loading'], value?: Value): Entry<Value> {
    const entry: Entry<Value> = { loading, value, removed: false };
    this.#entries.set(key, entry);
    return entry;
  }

  /**
   * Removes exactly this entry; returns false when a change has removed it or a later look-up
   * has replaced it.
   */
  #remove(key: string, entry: Entry<Value>): boolean {
    return this.#entries.peek(key) === entry && this.#entries.delete(key);
  }

  /**
   * Removes the entries of some values, and all that are being loaded: the value of one of these
   * may be older than the change.
   */
  invalidateWhere(isChanged: (value: Value) => boolean): void {
    this.#changeCount++;
    for (const [key, { value }] of [...this.#entries.entries()]) {
      if (value === undefined || isChanged(value)) this.#entries.delete(key);
    }
  }

  /**
   * Removes a key, or all of them (`*`). Called by the change feed, and by code that has just
   * changed the row itself.
   */
  invalidate(key: string): void {
    this.#changeCount++;
    if (key === '*') {
      this.#entries.clear();
      this.#absent.clear();
    } else {
      this.#entries.delete(key);
      this.#absent.delete(key);
    }
  }
}
