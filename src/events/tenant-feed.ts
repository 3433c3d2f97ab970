import type { Change } from './change.ts';
import { type Cursor, compareCursors } from './change-cursor.ts';
import { type Read, readChanges } from './change-reader.ts';
import { type ChangeFilter, changeSources, letsPass } from './change-sources.ts';

/** Changes in memory: at most so many, and at most so many characters. */
const maxRecent = 500;
const maxSize = 1024 * 1024;
const pageSize = 100;
/** Changes that are not final are looked for again after this time, in ms; so is everything after a fault. */
const minPauseMs = 20;
const maxPauseMs = 1_000;
const everything: ChangeFilter = { resources: [...changeSources.keys()] };

/** What follows a cursor, as far as a filter lets it pass. */
interface Next {
  readonly changes: readonly Change[];
  /** How far it was looked. */
  readonly last: Cursor;
  readonly isEnd: boolean;
}

/**
 * The end of the feed of one tenant: the changes that were read last. However many streams follow the tenant, each new
 * change is read once. A stream that is behind what is in memory reads pages of its own.
 */
export class TenantFeed {
  readonly #read: Read;
  readonly #onChanges: () => void;
  #recent: { readonly change: Change; readonly size: number }[] = [];
  #size = 0;
  /** Between these two, everything is in memory; undefined until something was read. */
  #start: Cursor | undefined;
  #end: Cursor | undefined;
  #isReading = false;
  #isStale = false;
  #isStopped = false;
  #pauseMs = minPauseMs;
  #timer: NodeJS.Timeout | undefined;

  constructor(read: Read, onChanges: () => void) {
    this.#read = read;
    this.#onChanges = onChanges;
  }

  /** Reads new changes, and once more if it is called meanwhile. */
  wake(): void {
    this.#isStale = true;
    if (this.#isReading) return;
    this.#isReading = true;
    clearTimeout(this.#timer);
    this.#readNew()
      .catch(() => {
        this.#isStale = false;
        this.#start = this.#end = undefined; // streams read for themselves, and learn why that fails
        this.#recent = [];
        this.#size = 0;
        this.#onChanges();
        this.#lookAgain();
      })
      .finally(() => {
        this.#isReading = false;
        if (this.#isStale && !this.#isStopped) this.wake();
      });
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  /** Returns what follows a cursor, at most a page. @throws {Problem} `cursor_expired` */
  async after(cursor: Cursor, filter: ChangeFilter): Promise<Next> {
    const [start, end] = [this.#start, this.#end];
    if (!start || !end || cursor.madeIn !== end.madeIn || compareCursors(cursor, start) < 0)
      return readChanges(this.#read, { after: cursor, limit: pageSize, filter });
    if (compareCursors(cursor, end) >= 0) return { changes: [], last: cursor, isEnd: true };
    const changes = this.#recent
      .map(({ change }) => change)
      .filter(change => compareCursors(change.cursor, cursor) > 0 && letsPass(filter, change));
    const page = changes.slice(0, pageSize);
    const isEnd = page.length === changes.length;
    return { changes: page, last: isEnd ? end : (page.at(-1) as Change).cursor, isEnd };
  }

  async #readNew(): Promise<void> {
    while (this.#isStale) {
      this.#isStale = false;
      const after = this.#end ?? 'now';
      const page = await readChanges(this.#read, { after, limit: pageSize, filter: everything });
      this.#start ??= page.last;
      this.#end = page.last;
      for (const change of page.changes) this.#remember(change);
      if (page.changes.length > 0 || after === 'now') this.#onChanges();
      if (!page.isEnd) this.#isStale = true;
      else if (page.isHeld) this.#lookAgain();
      else this.#pauseMs = minPauseMs;
    }
  }

  #lookAgain(): void {
    clearTimeout(this.#timer);
    if (this.#isStopped) return;
    this.#timer = setTimeout(() => this.wake(), this.#pauseMs).unref();
    this.#pauseMs = Math.min(2 * this.#pauseMs, maxPauseMs);
  }

  #remember(change: Change): void {
    const size = JSON.stringify(change).length;
    this.#recent.push({ change, size });
    this.#size += size;
    while (this.#recent.length > maxRecent || this.#size > maxSize) {
      const oldest = this.#recent.shift();
      if (!oldest) return;
      this.#size -= oldest.size;
      this.#start = oldest.change.cursor;
    }
  }
}
