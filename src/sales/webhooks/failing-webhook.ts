import { isoTime } from '../../lib/postgres/iso-time.ts';
import {
  preparedStatement,
  type RunStatement,
  type Statement,
} from '../../lib/postgres/statement.ts';
import { firstCursor, parseCursor } from '../events/change-cursor.ts';
import { maxScanned, placeValues } from '../events/change-statement.ts';
import type { PlacedWebhook, StoredEndpoint } from './endpoint-state.ts';

/** A webhook that fails, for operators. */
export interface FailingWebhook extends FailingState {
  readonly id: number;
  /** The host and the port of its URL. The rest of the URL is not shown to operators. */
  readonly host: string;
}

/** A webhook whose waiting changes are counted. */
interface FollowedWebhook extends PlacedWebhook {
  readonly id: number;
}

/** The result of the last attempt of a webhook, and the messages that wait for it. */
export interface FailingState {
  /** The status of the last response; null: there was none, and `error` says why. */
  readonly status: number | null;
  readonly error: string | null;
  /** The number of waiting messages: changes of its resources, and messages beside the feed. */
  readonly waiting: number;
  /**
   * True if more messages wait than `waiting`, because one query looks at a limited number of
   * changes.
   */
  readonly isMore: boolean;
  /** The time of the first waiting change, as ISO 8601; null: no change waits. */
  readonly waitingSince: string | null;
}

const rowsAfter = (table: string, id: string, matches: string): string => `
  (select ${matches} as matches, created_at from ${table}
    where feed_era is not null and (feed_era, feed_xid, id) > ($2, $3::text::xid8, ${id}::bigint)
    order by feed_era, feed_xid, id limit ${maxScanned})`;

const stateText = `
  with rows as (
    ${rowsAfter('audit_log', '$4', 'resource = any ($6) and action = any ($7)')}
    union all
    ${rowsAfter('activities', '$5', `'Activity' = any ($6) and 'create' = any ($7)`)})
  select status, error, (count_of_feed + count_of_messages)::int as waiting, "isMore", "waitingSince"
    from (select count(*) filter (where matches) as count_of_feed, count(*) >= ${maxScanned} as "isMore",
                 ${isoTime('min(created_at) filter (where matches)')} as "waitingSince" from rows) feed
   cross join (select count(*) as count_of_messages from webhook_messages where webhook_id = $1) messages
    left join (select status, error from webhook_deliveries where webhook_id = $1 order by id desc limit 1) last on true`;

/**
 * Selects the result of the last attempt of a webhook, and the number of waiting messages, in
 * one row.
 */
export function selectFailingState({
  id,
  position,
  resources,
  actions,
}: FollowedWebhook): Statement<FailingState> {
  const place = placeValues(parseCursor(position) ?? firstCursor);

  return preparedStatement(stateText, [id, ...place, resources, actions]);
}

/** Reads the failing state of the webhook with an id; undefined: there is no such webhook. */
export async function readWaiting(
  read: RunStatement,
  id: number,
): Promise<FailingState | undefined> {
  const [webhook] = await read(preparedStatement<FollowedWebhook>(placeText, [id]));
  if (!webhook) return undefined;

  const [state] = await read(selectFailingState(webhook));
  return state;
}

const placeText = 'select id, position, resources, actions from webhooks where id = $1';

/** Returns the enabled webhook that has failed for longest; undefined: none fails. */
export async function readFailingWebhook(
  read: RunStatement,
  endpoints: readonly StoredEndpoint[],
): Promise<FailingWebhook | undefined> {
  const failing = endpoints.filter(
    ({ isEnabled, failingSince }) => isEnabled && failingSince !== null,
  );
  const [first] = failing.sort((one, other) => (one.failingSince ?? 0) - (other.failingSince ?? 0));
  if (!first) return undefined;

  const [state] = await read(selectFailingState(first));
  return state && { id: first.id, host: new URL(first.url).host, ...state };
}
