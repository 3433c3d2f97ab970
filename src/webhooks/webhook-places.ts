import { problem } from '../errors.ts';
import type { Change } from '../events/change.ts';
import { type Cursor, compareCursors, cursorText, firstCursor, parseCursor } from '../events/change-cursor.ts';
import { type Read, readChanges } from '../events/change-reader.ts';
import { messageIdOf, ofThisData, placeBefore } from './webhook-message.ts';

/** What decides which changes a webhook receives, and where it stands. */
export interface PlacedWebhook {
  readonly resources: readonly string[];
  readonly actions: readonly string[];
  readonly position: string;
}

/** @throws {Problem} `unknown_record` when the feed has no such change any more, or the webhook does not receive it */
export async function findChange(read: Read, webhook: PlacedWebhook, messageId: string): Promise<Change> {
  const place = placeBefore(messageId);
  const [change] = place ? (await readAfter(read, webhook, place)).changes : [];
  if (change && messageIdOf(change) === messageId) return change;
  throw problem('unknown_record', { detail: 'The feed has no change with this MessageId for the webhook.' });
}

/** The place after the change at which a webhook stands, or after all that are final. */
export async function nextPlace(read: Read, webhook: PlacedWebhook, all: boolean): Promise<string> {
  const place = parseCursor(webhook.position) ?? firstCursor;
  let page = await readAfter(read, webhook, all ? 'now' : ofThisData(place));
  while (page.changes.length === 0 && !page.isEnd) page = await readAfter(read, webhook, page.last);
  return page.changes[0]?.Id ?? cursorText(page.last);
}

/**
 * The place before the first change since a minute before a moment, as a transaction may have begun before others; never
 * after that of the webhook, which would leave out changes that have not arrived.
 */
export async function placeAt(read: Read, webhook: PlacedWebhook, since: Date): Promise<string> {
  const { last } = await readAfter(read, webhook, 'now');
  const [found] = await read({ ...firstSince, values: [since.toISOString()] });
  const first = found && { era: Number(found.era), xid: Number(found.xid) - 1, kind: maxKind, id: maxId };
  const place = { ...last, ...first };
  const own = parseCursor(webhook.position);
  return own && compareCursors(own, place) < 0 ? webhook.position : cursorText(place);
}

/** Above the kinds and the ids of all changes. */
const [maxKind, maxId] = [9, Number.MAX_SAFE_INTEGER];
/** The first change since a minute before a moment. Of the activities, an index finds the first 100 by their time. */
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

function readAfter(read: Read, { resources, actions }: PlacedWebhook, after: Cursor | 'now') {
  return readChanges(read, { after, limit: 1, filter: { resources, actions } });
}
