import { LRUCache } from 'lru-cache';
import type { ChangeFeed } from './change-feed.ts';

interface CacheOptions<Value> {
  feed: ChangeFeed;
  /** The table whose changes drop entries, by the key that its trigger announces. */
  table: string;
  load: (key: string) => Promise<Value | undefined>;
  max: number;
  ttlMs: number;
  /** How many keys without a value are remembered, so that asking for them again costs no query. 0: none. */
  maxAbsent?: number;
}

interface Kept<Value> {
  readonly loading: Promise<Value | undefined>;
  /** Undefined until it is loaded. */
  value: Value | undefined;
  dropped: boolean;
}

/** A value that is kept, for who would look it up again and again. It counts while the change feed is current as well. */
export interface CacheEntry<Value> {
  readonly value: Value | undefined;
  /** True as soon as the cache has let go of it; that it has grown too old is noticed when it is looked up. */
  readonly dropped: boolean;
}

const clockMs = 1_000; // entries live for minutes: their age is read from a clock that is looked at once a second

/**
 * Look-ups of the control database, kept in memory while the change feed says that they are current.
 *
 * The *promise* of a value is what is kept, from the moment it is asked for: many askers share one query, and a change
 * announced while the query runs drops the promise, so an answer that may be older than the change is never kept.
 */
export class ControlCache<Value extends object> {
  readonly #options: CacheOptions<Value>;
  readonly #kept: LRUCache<string, Kept<Value>>;
  readonly #absent: LRUCache<string, true>;
  #changes = 0;

  constructor(options: CacheOptions<Value>) {
    this.#options = options;
    this.#kept = new LRUCache({
      max: options.max,
      ttl: options.ttlMs,
      ttlResolution: clockMs,
      dispose: kept => {
        kept.dropped = true;
      },
    });
    this.#absent = new LRUCache({ max: options.maxAbsent || 1, ttl: options.ttlMs });
    options.feed.subscribe(options.table, key => this.invalidate(key));
  }

  async get(key: string): Promise<Value | undefined> {
    const { feed, load, maxAbsent } = this.#options;
    if (!feed.current) return load(key);
    if (maxAbsent && this.#absent.has(key)) return undefined;
    const kept = this.#kept.get(key);
    if (kept !== undefined) return kept.loading;

    const asked = this.#keep(key, load(key));
    try {
      asked.value = await asked.loading;
      if (asked.value === undefined && this.#forget(key, asked) && maxAbsent) this.#absent.set(key, true);
      return asked.value;
    } catch (error) {
      this.#forget(key, asked);
      throw error;
    }
  }

  /** What `get` would give from memory, at this moment; undefined when it would have to ask. */
  getCached(key: string): CacheEntry<Value> | undefined {
    const kept = this.#options.feed.current ? this.#kept.get(key) : undefined;
    return kept?.value && kept;
  }

  /** How many changes have been heard of. To be asked before something is read that is then offered. */
  get changeCount(): number {
    return this.#changes;
  }

  /** Keeps a value that was read together with something else, unless anything has changed since. */
  addIfUnchanged(key: string, value: Value, since: number): void {
    if (this.#options.feed.current && this.#changes === since && !this.#kept.has(key))
      this.#keep(key, Promise.resolve(value), value);
  }

  #keep(key: string, loading: Kept<Value>['loading'], value?: Value): Kept<Value> {
    const kept: Kept<Value> = { loading, value, dropped: false };
    this.#kept.set(key, kept);
    return kept;
  }

  /** Drops the entry if it is still this one; false when a change or a later look-up has replaced it. */
  #forget(key: string, asked: Kept<Value>): boolean {
    return this.#kept.peek(key) === asked && this.#kept.delete(key);
  }

  /** Forgets a key, or all of them (`*`). The change feed does it; who changes a row here need not wait for that. */
  invalidate(key: string): void {
    this.#changes++;
    if (key === '*') {
      this.#kept.clear();
      this.#absent.clear();
    } else {
      this.#kept.delete(key);
      this.#absent.delete(key);
    }
  }
}
