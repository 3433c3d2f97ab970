import { preparedStatement, type Statement } from '../../lib/postgres/statement.ts';
import type { Cursor } from '../events/change-cursor.ts';
import { isKept, lastMadeAt, placeValues } from '../events/change-statement.ts';
import { writeCountersSql } from '../events/write-counters.ts';
import type { EndpointProgress, NewMessage } from './endpoint-progress.ts';
import type { StoredEndpoint, StoredMessage } from './endpoint-state.ts';
import { formerSecrets } from './rotate-secret.ts';

const ms = (column: string): string => `(extract(epoch from ${column}) * 1000)::float8`;
const time = (value: string): string => `to_timestamp(${value}::float8 / 1000)`;
/** The messages, and the changes, that are sent together. */
export const batchSize = 20;
/** Maximum stored attempts of an endpoint. Only each 20th batch deletes those above it. */
const maxDeliveries = 10_000;
const trimEvery = 20;
const keptDeliveries = maxDeliveries - trimEvery * 2 * batchSize;

/**
 * SQL: lets PostgreSQL count the rows that the connection has written when the statement ends,
 * instead of up to 10 s later.
 */
const countNow = 'pg_stat_force_next_flush()';
const countWritten: Statement = preparedStatement(`select ${countNow}`, []);

/**
 * Lets PostgreSQL count the rows that the connection has written, and returns `isKept`: true if
 * the database still has the changes up to a place. It has not if its server was put back to an
 * earlier state.
 * @param place undefined: none was read
 */
export function countAndCheck(place: Cursor | undefined): Statement {
  if (!place) return countWritten;
  const text = `select ${countNow}, ${isKept('$5')} as "isKept" from (select ${lastMadeAt} as made_at) last`;
  return preparedStatement(text, [...placeValues(place), place.madeAt]);
}

/**
 * Deletes attempts that are older than 30 days, and those that would be too many with the next
 * batches.
 */
const trim = `
  delete from webhook_deliveries
   where webhook_id = $1 and (select version % ${trimEvery} from moved) = 0
     and (id <= (select id from webhook_deliveries where webhook_id = $1
                  order by id desc offset ${keptDeliveries} limit 1)
       or id in (select id from (select id, attempted_at from webhook_deliveries where webhook_id = $1
                                  order by id limit ${trimEvery * 2 * batchSize}) oldest
                  where attempted_at < now() - interval '30 days'))`;

/** @param id of one endpoint; null: all of the tenant */
export const selectEndpoints = (now: number, id: number | null = null): Statement<StoredEndpoint> =>
  preparedStatement(
    `select id, url, resources, actions, payload, position, ${ms('position_at')} as "positionAt",
            is_enabled as "isEnabled", disabled_reason as "disabledReason", user_id as "userId", version, failures,
            ${ms('failing_since')} as "failingSince", ${ms('w.next_attempt_at')} as "nextAttemptAt",
            ${ms('least(w.next_attempt_at, waiting.next_attempt_at)')} as "dueAt", "dueMessages",
            secret, ${formerSecrets('$1')} as previous,
            (select ${writeCountersSql} from pg_database where datname = current_database()) as written
       from webhooks w join webhook_secrets on webhook_id = id
      cross join lateral (select min(m.next_attempt_at) as next_attempt_at,
                                 count(*) filter (where m.next_attempt_at <= ${time('$1')})::integer as "dueMessages"
                            from webhook_messages m where m.webhook_id = w.id) waiting
      where $2::integer is null or id = $2`,
    [now, id],
  );

export const selectDueMessages = (webhookId: number, now: number): Statement<StoredMessage> =>
  preparedStatement(
    `select id, message_id as "messageId", body, failures from webhook_messages
      where webhook_id = $1 and next_attempt_at <= ${time('$2')} order by next_attempt_at, id limit ${batchSize}`,
    [webhookId, now],
  );

/**
 * SQL: the time at which people were last notified that an endpoint was disabled: at most once
 * a day.
 */
const notifiedAt = `case when notified_at > ${time('$11')} - interval '1 day' then notified_at else ${time('$11')} end`;

/**
 * Stores the progress of an endpoint. Without a row in the result, the endpoint was deleted,
 * disabled or changed since it was read, and nothing is stored. `isToNotify`: people are to be
 * notified that it was disabled.
 */
export const saveProgress = (
  { id, version }: Pick<StoredEndpoint, 'id' | 'version'>,
  progress: EndpointProgress,
  now: number,
): Statement => {
  const { state, position, disable, succeededAt, sent, queued, attempts } = progress;

  // The audit trigger runs for these columns alone, and it alone needs the actor.
  const disabling = disable
    ? `, is_enabled = false, disabled_reason = '${disable}', notified_at = ${notifiedAt}`
    : '';

  const statement = preparedStatement(
    `with moved as (
       update webhooks
          set position = $3, position_at = case when position = $3 then position_at else ${time('$11')} end, version = version + 1, failures = $4,
              failing_since = ${time('$5')}, next_attempt_at = ${time('$6')},
              last_success_at = coalesce(${time('$7')}, last_success_at) ${disabling}
        where id = $1 and version = $2 and is_enabled returning id, version, notified_at = ${time('$11')} as "isToNotify"),
     sent as (delete from webhook_messages where id = any($8::bigint[]) and exists (select from moved)),
     queued as (
       insert into webhook_messages (webhook_id, message_id, body, failures, next_attempt_at)
       select moved.id, "messageId", body, failures, ${time('at')}
         from moved, jsonb_to_recordset($9) q ("messageId" text, body text, failures integer, at float8)),
     trimmed as (${trim}),
     logged as (
       insert into webhook_deliveries
              (webhook_id, message_id, type, attempted_at, duration_ms, status, error, response)
       select moved.id, "messageId", type, ${time('at')}, "durationMs", status, error, response
         from moved, jsonb_to_recordset($10) a ("messageId" text, type text, at float8, "durationMs" integer,
                                                status integer, error text, response text))
     select version, "isToNotify", ${countNow} from moved`,
    [
      id,
      version,
      position,
      state.failures,
      state.failingSince,
      state.nextAttemptAt,
      succeededAt ?? null,
      sent,
      JSON.stringify(queued),
      JSON.stringify(attempts),
      now,
    ],
  );

  return disable ? statement : { ...statement, withActor: () => statement };
};

/** The messages beside the feed that an endpoint may have. */
export const maxMessages = 1_000;

/**
 * Adds a message. Without a row in the result, the endpoint has as many messages as it may
 * have.
 */
export const insertMessage = (
  webhookId: number,
  { messageId, body, failures, at }: NewMessage,
): Statement<{ MessageId: string }> =>
  preparedStatement(
    `insert into webhook_messages (webhook_id, message_id, body, failures, next_attempt_at)
     select $1, $2, $3, $4, ${time('$5')}
      where (select count(*) from webhook_messages where webhook_id = $1) < ${maxMessages}
     returning message_id as "MessageId"`,
    [webhookId, messageId, body, failures, at],
  );

/**
 * Lets an endpoint, and each of its messages, be tried again at once.
 * @param changes how many changes wait, for the response
 */
export const retryNow = (
  webhookId: number,
  changes: number,
  now: number,
): Statement<{ Changes: number; Messages: number }> =>
  preparedStatement(
    `with due as (update webhook_messages set next_attempt_at = ${time('$3')} where webhook_id = $1 returning id)
     update webhooks set next_attempt_at = null, version = version + 1 where id = $1
     returning $2::integer as "Changes", (select count(*)::integer from due) as "Messages"`,
    [webhookId, changes, now],
  );

/**
 * The messages about changes whose last attempt since a moment has failed, and which are not
 * tried again.
 */
export const selectFailed = (
  webhookId: number,
  since: Date,
  limit: number,
): Statement<{ messageId: string }> =>
  preparedStatement(
    `select message_id as "messageId" from webhook_deliveries d
      where webhook_id = $1 and attempted_at >= $2 and message_id like 'evt\\_%'
        and not exists (select from webhook_messages m where m.webhook_id = $1 and m.message_id = d.message_id)
      group by message_id having (array_agg(error order by id desc))[1] is not null
      order by min(id) limit $3`,
    [webhookId, since.toISOString(), limit],
  );

/** Deletes the messages about changes of other resources. */
export const deleteOthers = (webhookId: number, resources: readonly string[]): Statement =>
  preparedStatement(
    `delete from webhook_messages
      where webhook_id = $1 and not body::jsonb -> 'data' ->> 'Resource' = any ($2::text[])`,
    [webhookId, resources],
  );

/** Moves an endpoint to another place, where it goes on at once. */
export const movePosition = (webhookId: number, position: string): Statement =>
  preparedStatement(
    `update webhooks set position = $2, position_at = now(), version = version + 1, failures = 0, next_attempt_at = null
      where id = $1 returning id`,
    [webhookId, position],
  );

/** Lets the place of each endpoint expire: it loses its mark, and a gap comes next. */
export const beginGaps: Statement = preparedStatement(
  `update webhooks set position = regexp_replace(position, '^[^-]+', '0'), version = version + 1 returning id`,
  [],
);

/**
 * Selects the time of the last change before an era: nobody has changed the data between it and
 * the replacement.
 */
export const selectLastChange = (era: number): Statement<{ at: number | null }> =>
  preparedStatement(
    `select ${ms('max(created_at)')} as "at" from (
       (select created_at from audit_log where feed_era < $1
         order by feed_era desc, feed_xid desc, id desc limit 1)
       union all
       (select created_at from activities where feed_era < $1
         order by feed_era desc, feed_xid desc, id desc limit 1)
     ) last`,
    [era],
  );
