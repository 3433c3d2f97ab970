import { randomInt } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import pLimit from 'p-limit';
import type { TenantRecord } from '../../control/records.ts';
import type { EventSink } from '../../lib/http/response/event-stream.ts';
import type { RunStatement } from '../../lib/postgres/statement.ts';
import { hasCode, problem } from '../../lib/problems.ts';
import { requestDeadlineMs, withDeadline } from '../../lib/runtime/deadline.ts';
import { type Caller, type CallerLookups, isCallerCurrent } from '../../tenancy/caller.ts';
import type { TenantDatabases } from '../../tenancy/connections/tenant-databases.ts';
import { selectOwnEntity } from '../../tenancy/own-entity.ts';
import { type Change, type ChangeInclude, sentChange } from './change.ts';
import type { Cursor } from './change-cursor.ts';
import type { ChangeFilter } from './change-sources.ts';
import type { ChangeWatch } from './change-watch.ts';
import type { HeldFeeds } from './held-feeds.ts';
import { readerCursorText } from './reader-cursor.ts';
import { TenantFeed } from './tenant-feed.ts';

/** Maximum numbers of streams in this process. */
const maxOfUser = 5;
const maxOfTenant = 200;
/**
 * The time after which the rights of callers are checked again, and a comment is sent if there
 * was no event.
 */
const checkMs = 1_000;
const quietMs = 15_000;
/** After so many characters of events, the event loop runs before the next page is encoded. */
const maxEncodedInTurn = 32 * 1024;

interface StreamsOptions {
  watch: ChangeWatch;
  databases: Pick<TenantDatabases, 'open'>;
  heldFeeds: Pick<HeldFeeds, 'note'>;
  directory: CallerLookups;
  /** Unix time in seconds. */
  now: () => number;
}

/** One stream: its reader, and the changes that it sends. */
export interface StreamRequest {
  readonly tenant: TenantRecord;
  readonly caller: Caller;
  /** The mark of the caller's access to the feed (`accessMark`). */
  readonly access: string;
  readonly after: Cursor;
  readonly filter: ChangeFilter;
  /** The values that each change has beside its own fields. */
  readonly included: readonly ChangeInclude[];
}

interface Stream extends StreamRequest {
  readonly sink: EventSink;
  cursor: Cursor;
  /** True while the stream is being read or sent. */
  isBusy: boolean;
  /** True if the stream may have more changes to send. */
  isStale: boolean;
  sentAt: number;
  /** True if changes were passed by since the last id that the client has received. */
  hasMoved: boolean;
}

interface Followed {
  readonly feed: TenantFeed;
  readonly read: RunStatement;
  readonly streams: Set<Stream>;
  readonly close: () => void;
}

/** The reason why a stream ends, as its last event names it. */
type EndReason = 'token_expired' | 'access_changed' | 'cursor_expired' | 'unavailable' | 'stopping';

/**
 * The streams of changes of a process. While nothing happens, they use no connection to a
 * tenant's database.
 */
export class ChangeStreams {
  readonly #options: StreamsOptions;
  readonly #followed = new Map<string, Followed>();
  readonly #timer = setInterval(() => this.#check(), checkMs).unref();
  /** Encodes the pages of all streams one after the other. */
  readonly #inTurn = pLimit(1);
  /** Characters that were encoded since the event loop has run. */
  #encodedInTurn = 0;
  #isChecking = false;
  #isStopping = false;

  constructor(options: StreamsOptions) {
    this.#options = options;
  }

  /**
   * @throws {Problem} `rate_limited` when the user or the tenant has as many streams as it may
   *   have
   */
  requireRoom({ tenant, caller }: Pick<StreamRequest, 'tenant' | 'caller'>): void {
    if (this.#isStopping) throw problem('unavailable');
    const streams = [...(this.#followed.get(tenant.guid)?.streams ?? [])];
    const ofUser = streams.filter(each => each.caller.userId === caller.userId).length;
    if (ofUser < maxOfUser && streams.length < maxOfTenant) return;
    const detail = `A user may have ${maxOfUser} streams, and a tenant ${maxOfTenant}. Close one of them.`;
    throw problem('rate_limited', { detail, headers: { 'Retry-After': '15' } });
  }

  begin(request: StreamRequest, sink: EventSink): void {
    const { guid } = request.tenant;
    const followed = this.#followed.get(guid) ?? this.#follow(guid);
    const state = { isBusy: false, isStale: true, sentAt: performance.now(), hasMoved: false };
    const stream: Stream = { ...request, ...state, sink, cursor: request.after };
    followed.streams.add(stream);
    sink.onClose(() => {
      followed.streams.delete(stream);
      if (followed.streams.size === 0) followed.close();
    });
    void sink.send(`${retry()}id: ${idOf(stream)}\n\n`);
    this.#pump(followed, stream);
  }

  /**
   * Ends all streams, each after a whole event; their clients connect again, to another
   * process.
   */
  stop(): void {
    this.#isStopping = true;
    clearInterval(this.#timer);
    for (const { streams } of this.#followed.values()) {
      for (const stream of streams) end(stream, 'stopping');
    }
  }

  #follow(guid: string): Followed {
    const { watch, databases, directory, heldFeeds } = this.#options;

    const read: RunStatement = statement =>
      withDeadline(requestDeadlineMs, async deadline => {
        const tenant = await directory.tenant(guid);
        if (!tenant) throw problem('unavailable');
        return databases.open(tenant).reads.read(statement, deadline);
      });

    const streams = new Set<Stream>();
    const feed = new TenantFeed(
      read,
      () => {
        for (const stream of streams) this.#pump(followed, stream);
      },
      ({ isHeld }) => void heldFeeds.note(guid, isHeld, read),
    );

    const unsubscribe = watch.subscribe(guid, () => feed.wake());
    const close = (): void => {
      unsubscribe();
      feed.stop();
      if (this.#followed.get(guid) === followed) this.#followed.delete(guid);
    };

    const followed: Followed = { feed, read, streams, close };
    this.#followed.set(guid, followed);
    return followed;
  }

  /**
   * Sends the changes that follow the cursor of a stream, page after page; each page after the
   * client has taken the one before.
   */
  #pump(followed: Followed, stream: Stream): void {
    stream.isStale = true;
    if (stream.isBusy) return;
    stream.isBusy = true;
    this.#send(followed, stream)
      .catch(error =>
        end(stream, hasCode(error, 'cursor_expired') ? 'cursor_expired' : 'unavailable'),
      )
      .finally(() => {
        stream.isBusy = false;
        if (stream.isStale && !stream.sink.isClosed) this.#pump(followed, stream);
      });
  }

  async #send({ feed, read }: Followed, stream: Stream): Promise<void> {
    while (stream.isStale && !stream.sink.isClosed) {
      stream.isStale = false;
      const { events, readCount, last, isEnd } = await this.#readEvents(feed, stream);

      if (events !== '') {
        if (await this.#endIfForbidden(stream)) return;
        if (await this.#endIfOtherEntity(read, stream)) return;
        stream.sentAt = performance.now();
        stream.hasMoved = false;
        await stream.sink.send(events);
      } else if (readCount > 0) {
        stream.hasMoved = true;
      }

      stream.cursor = last;
      if (!isEnd) stream.isStale = true;
    }
  }

  /**
   * Reads the next page of a stream as text, so that nothing else of the page is in memory
   * while it is sent.
   */
  async #readEvents(feed: TenantFeed, stream: Stream) {
    const { changes, ...page } = await feed.read(stream.cursor, stream.filter);
    const events = await this.#inTurn(() => this.#encode(changes, stream));
    return { ...page, events };
  }

  /**
   * Encodes the changes of a page as events. Lets the event loop run in between: otherwise many
   * streams that share a page would hold it until all of them have the page.
   */
  async #encode(changes: readonly Change[], { access, included }: Stream): Promise<string> {
    const events = changes.map(change => eventOf(change, access, included)).join('');

    this.#encodedInTurn += events.length;
    if (this.#encodedInTurn > maxEncodedInTurn) {
      this.#encodedInTurn = 0;
      await nextTurn();
    }
    return events;
  }

  #check(): void {
    // the control database responds slowly: a second round would wait behind the first
    if (this.#isChecking) return;
    this.#isChecking = true;
    const streams = [...this.#followed.values()].flatMap(followed => [...followed.streams]);
    const checked = streams.map(async stream => {
      await this.#endIfForbidden(stream);
      keepAlive(stream);
    });
    void Promise.allSettled(checked).then(() => (this.#isChecking = false));
  }

  /**
   * Ends the stream of a reader of scope `Self` if the database has another entity under the
   * number of the reader's: the shared pages have all changes of that number.
   */
  async #endIfOtherEntity(read: RunStatement, stream: Stream): Promise<boolean> {
    const { ownEntity } = stream.filter;
    if (!ownEntity || (await read(selectOwnEntity(ownEntity))).length > 0) return false;

    end(stream, 'access_changed');
    return true;
  }

  async #endIfForbidden(stream: Stream): Promise<boolean> {
    const { caller, tenant } = stream;
    const { now, directory } = this.#options;
    const isExpired = caller.endsAt !== undefined && caller.endsAt <= now();
    if (!isExpired && (await isCallerCurrent(caller, tenant.guid, directory))) return false;
    end(stream, isExpired ? 'token_expired' : 'access_changed');
    return true;
  }
}

function eventOf(change: Change, access: string, included: readonly ChangeInclude[]): string {
  const id = readerCursorText(change.cursor, access);
  return `id: ${id}\ndata: ${JSON.stringify(sentChange(change, access, included))}\n\n`;
}

/** The id of an event that moves the cursor of a client, and sends no change. */
function idOf({ cursor, access }: Stream): string {
  return readerCursorText(cursor, access);
}

/**
 * Returns the field with the time after which a client connects again, a random one: clients
 * that lose their streams together then come back one after the other.
 */
function retry(): string {
  return `retry: ${1_000 + randomInt(4_000)}\n`;
}

/**
 * Sends a comment, without an empty line: some readers take that for an event. Only where
 * changes were passed by, the place behind them follows as an event without data, so that the
 * cursor of a client whose filter lets nothing pass does not expire.
 */
function keepAlive(stream: Stream): void {
  if (stream.isBusy || performance.now() - stream.sentAt < quietMs) return;

  const place = stream.hasMoved ? `id: ${idOf(stream)}\n\n` : '';
  stream.sentAt = performance.now();
  stream.hasMoved = false;
  void stream.sink.send(`: nothing new\n${place}`);
}

function end({ sink }: Stream, reason: EndReason): void {
  sink.end(`${retry()}event: end\ndata: ${JSON.stringify({ Reason: reason })}\n\n`);
}
