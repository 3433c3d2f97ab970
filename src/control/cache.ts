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

/**
 * Look-ups of the control database, kept in memory while the change feed says that they are current.
 *
 * The *promise* of a value is what is kept, from the moment it is asked for: many askers share one query, and a change
 * announced while the query runs drops the promise, so an answer that may be older than the change is never kept.
 */
export class ControlCache<Value extends object> {
  readonly #options: CacheOptions<Value>;
  readonly #kept: LRUCache<string, Promise<Value | undefined>>;
  readonly #absent: LRUCache<string, true>;

  constructor(options: CacheOptions<Value>) {
    this.#options = options;
    this.#kept = new LRUCache({ max: options.max, ttl: options.ttlMs });
    this.#absent = new LRUCache({ max: options.maxAbsent || 1, ttl: options.ttlMs });
    options.feed.subscribe(options.table, key => this.drop(key));
  }

  async get(key: string): Promise<Value | undefined> {
    const { feed, load, maxAbsent } = this.#options;
    if (!feed.current) return load(key);
    if (maxAbsent && this.#absent.has(key)) return undefined;
    const kept = this.#kept.get(key);
    if (kept !== undefined) return kept;

    const loading = load(key);
    this.#kept.set(key, loading);
    try {
      const value = await loading;
      if (value === undefined && this.#forget(key, loading) && maxAbsent) this.#absent.set(key, true);
      return value;
    } catch (error) {
      this.#forget(key, loading);
      throw error;
    }
  }

  /** Drops the entry if it is still this one; false when a change or a later look-up has replaced it. */
  #forget(key: string, promise: Promise<Value | undefined>): boolean {
    return this.#kept.peek(key) === promise && this.#kept.delete(key);
  }

  /** Forgets a key, or all of them (`*`). The change feed does it; who changes a row here need not wait for that. */
  drop(key: string): void {
    if (key === '*') {
      this.#kept.clear();
      this.#absent.clear();
    } else {
      this.#kept.delete(key);
      this.#absent.delete(key);
    }
  }
}
