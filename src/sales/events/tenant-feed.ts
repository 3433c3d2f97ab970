import pLimit from 'p-limit';
import type { RunStatement } from '../../lib/postgres/statement.ts';
import { seenChange } from './change.ts';
import { type Cursor, cursorText } from './change-cursor.ts';
import { type ChangePage, readChanges } from './change-reader.ts';
import { type ChangeFilter, changeSources } from './change-sources.ts';

/**
 * Maximum changes of a page, and bytes of their contents. A stream holds a page in memory until
 * its client has taken it: the 200 streams of a tenant hold 13 MiB, or a change each.
 */
const maxChanges = 100;
const pageBytes = 64 * 1024;
/** The pauses, in ms, after which the feed is read again while changes are not final. */
const minPauseMs = 20;
const maxPauseMs = 1_000;
const everything: ChangeFilter = { resources: [...changeSources.keys()] };

/**
 * Reads the feed of one tenant for its streams. Streams at the same place share a read: however
 * many streams follow the tenant, each new change is read once. Its pages are read one after
 * the other, so that many streams that are far behind occupy one connection of the tenant, and
 * one core of its server.
 */
export class TenantFeed {
  readonly #read: RunStatement;
  readonly #onChanges: () => void;
  readonly #onPage: (page: ChangePage) => void;
  /** The shared reads that have begun since the last wake, by their cursors, until they end. */
  readonly #shared = new Map<string, Promise<ChangePage>>();
  readonly #inTurn = pLimit(1);
  /**
   * Maximum changes of the next page. PostgreSQL reads the contents of so many changes before
   * it knows how many of them fit into a page.
   */
  #limit = maxChanges;
  #pauseMs = minPauseMs;
  #timer: NodeJS.Timeout | undefined;

  /** @param onPage called with each page that is read */
  constructor(
    read: RunStatement,
    onChanges: () => void,
    onPage: (page: ChangePage) => void = () => {},
  ) {
    this.#read = read;
    this.#onChanges = onChanges;
    this.#onPage = onPage;
  }

  /** Reads again soon, because there may be new changes. */
  wake(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // A shared read may have begun before the change.
    this.#shared.clear();
    this.#onChanges();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /**
   * Returns the changes that follow a cursor.
   * @throws {Problem} `cursor_expired`
   */
  async read(after: Cursor, filter: ChangeFilter): Promise<ChangePage> {
    const key = cursorText(after);
    const begun = this.#shared.get(key);
    const reading = begun ?? this.#inTurn(() => this.#readAll(after));
    if (!begun) this.#shared.set(key, reading);
    try {
      const page = await reading;
      return { ...page, changes: page.changes.flatMap(change => seenChange(filter, change) ?? []) };
    } finally {
      if (this.#shared.get(key) === reading) this.#shared.delete(key);
    }
  }

  async #readAll(after: Cursor): Promise<ChangePage> {
    const limit = this.#limit;
    const page = await readChanges(this.#read, {
      after,
      limit,
      maxBytes: pageBytes,
      filter: everything,
    });

    this.#onPage(page);
    const { readCount } = page;
    this.#limit =
      page.isEnd || readCount === limit ? Math.min(2 * limit, maxChanges) : Math.max(1, readCount);
    if (!page.isHeld) this.#pauseMs = minPauseMs;
    else if (page.isEnd) this.#lookAgain();

    return page;
  }

  #lookAgain(): void {
    if (this.#timer) return;
    this.#timer = setTimeout(() => this.wake(), this.#pauseMs).unref();
    this.#pauseMs = Math.min(2 * this.#pauseMs, maxPauseMs);
  }
}
