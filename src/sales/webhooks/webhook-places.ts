import type { RunStatement } from '../../lib/postgres/statement.ts';
import { hasCode, problem } from '../../lib/problems.ts';
import type { Change } from '../events/change.ts';
import {
  type Cursor,
  compareCursors,
  cursorText,
  eventIdOf,
  firstCursor,
  parseCursor,
} from '../events/change-cursor.ts';
import { type ChangePage, readChanges } from '../events/change-reader.ts';
import type { PlacedWebhook } from './endpoint-state.ts';
import { ofThisData, placeBefore } from './webhook-message.ts';
import { selectLastChange } from './webhook-store.ts';

/** The page of changes that a webhook receives next. */
export interface NextPage extends ChangePage {
  /**
   * The gap, if the data were replaced, or changes after the place of the webhook were removed:
   * changes that the webhook has received may be undone, or it misses some. `last` is the place
   * after the gap.
   */
  readonly gap?: {
    /** The era in which the gap was found. */
    readonly madeIn: number;
    /**
     * The time of the last change that the data still have, in ms since 1970; undefined: not
     * known.
     */
    readonly lastChangeAt: number | undefined;
  };
}

/** Reads the changes after the place of a webhook, or the gap that comes before them. */
export async function readNext(
  read: RunStatement,
  webhook: PlacedWebhook,
  limit: number,
): Promise<NextPage> {
  const after = parseCursor(webhook.position) ?? firstCursor;
  const page = await readUnlessExpired(read, webhook, after, limit);
  if (page) return page;

  const { last: end } = await readAfter(read, webhook, 'now');
  const kept = await readUnlessExpired(read, webhook, ofThisData(after), 1);
  const [lastChange] = kept ? await read(selectLastChange(end.madeIn)) : [];
  const lastChangeAt = lastChange?.at ?? undefined;
  const last = kept?.from ?? firstCursor;

  return {
    changes: [],
    readCount: 0,
    from: last,
    last,
    isEnd: false,
    isHeld: false,
    gap: { madeIn: end.madeIn, lastChangeAt },
  };
}

/**
 * @throws {Problem} `unknown_record` when the feed has no such change any more, or the webhook
 *   does not receive it
 */
export async function findChange(
  read: RunStatement,
  webhook: PlacedWebhook,
  messageId: string,
): Promise<Change> {
  const place = placeBefore(messageId);
  const [change] = place ? (await readAfter(read, webhook, place)).changes : [];
  if (change && eventIdOf(change.cursor) === messageId) return change;
  throw problem('unknown_record', {
    detail: 'The feed has no change with this MessageId for the webhook.',
  });
}

/**
 * True when the message about a change was left out, or given up: the webhook has gone on after
 * it.
 */
export function isPassed({ position }: PlacedWebhook, messageId: string): boolean {
  const before = placeBefore(messageId);
  return before !== undefined && compareCursors(parseCursor(position) ?? firstCursor, before) > 0;
}

/**
 * The place after the gap or the change at which a webhook stands, or after all that are final.
 */
export async function nextPlace(
  read: RunStatement,
  webhook: PlacedWebhook,
  all: boolean,
): Promise<string> {
  let next: NextPage = all
    ? await readAfter(read, webhook, 'now')
    : await readNext(read, webhook, 1);
  while (!next.gap && next.changes.length === 0 && !next.isEnd) {
    next = await readAfter(read, webhook, next.last);
  }
  return cursorText(next.changes[0]?.cursor ?? next.last);
}

/**
 * Returns the place before the first change since `since`. Begins a minute earlier, because a
 * change is dated by the begin of its transaction, which may be older than others. Returns no
 * place after that of the webhook, which would leave out changes that have not arrived.
 */
export async function placeAt(
  read: RunStatement,
  webhook: PlacedWebhook,
  since: Date,
): Promise<string> {
  const { last } = await readAfter(read, webhook, 'now');
  const [found] = await read({ ...firstSince, values: [since.toISOString()] });
  const first = found && { era: Number(found.era), xid: Number(found.xid), kind: 0, id: 0 };
  const place = first
    ? (await readAfter(read, webhook, ofThisData({ ...last, ...first }))).from
    : last;
  const own = parseCursor(webhook.position);
  return own && compareCursors(own, place) < 0 ? webhook.position : cursorText(place);
}

/**
 * Selects the first change since a minute before a moment. Of the activities, an index finds
 * the first 100 by their time.
 */
const firstSince = {
  name: 'first_change_since',
  text: `select era, xid from (
           (select feed_era as era, feed_xid::text as xid, feed_xid from audit_log
             where created_at >= $1::timestamptz - interval '1 minute' and feed_era is not null
             order by feed_era, feed_xid, id limit 1)
           union all
           (select feed_era, feed_xid::text, feed_xid from activities
             where created_at >= $1::timestamptz - interval '1 minute' and feed_era is not null
             order by created_at limit 100)) first
          order by era, feed_xid limit 1`,
};

function readAfter(
  read: RunStatement,
  { resources, actions }: PlacedWebhook,
  after: Cursor | 'now',
  limit = 1,
) {
  return readChanges(read, { after, limit, filter: { resources, actions } });
}

async function readUnlessExpired(
  read: RunStatement,
  webhook: PlacedWebhook,
  after: Cursor,
  limit: number,
) {
  try {
    return await readAfter(read, webhook, after, limit);
  } catch (error) {
    if (hasCode(error, 'cursor_expired')) return undefined;
    throw error;
  }
}
