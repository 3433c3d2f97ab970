import { preparedStatement, type Statement } from '../../lib/postgres/statement.ts';
import { changeActions } from '../audit/audit-log.ts';
import { jsonForEntity } from '../resources/rest/named-entities.ts';
import type { Cursor } from './change-cursor.ts';
import { type ChangeFilter, namedColumns, ownedResources } from './change-sources.ts';

/** Kinds of rows, by which changes of one transaction are ordered. */
const kinds = { audit: 1, activity: 2 };
/** The maximum number of changes that one query reads. */
export const maxScanned = 1_000;

/**
 * SQL: true if a change is of no record that names entities, or if the record was or is one that
 * the caller of scope `Self` reads (`seenChange`).
 */
const isForOwn = [...namedColumns]
  .map(([resource, column]) => {
    const [before, after] = ['before', 'after'].map(json =>
      jsonForEntity(json, column, '(select id from own)'),
    );
    return `(resource <> '${resource}' or ${before} or ${after})`;
  })
  .join(' and ');

/**
 * Columns of both tables without their contents. `matches` says whether the filter lets the row
 * pass.
 */
const audit = `
  select ${kinds.audit} as kind, feed_era as era, feed_xid as xid, id,
         resource = any ($7) and action = any ($8)
           and ($9::bigint is null or (entity_id = (select id from own) or resource <> all ($10)) and ${isForOwn}) as matches,
         created_at, user_guid, resource, record_key, action, entity_id, before, after from audit_log`;
const activity = `
  select ${kinds.activity}, feed_era, feed_xid, id,
         'Activity' = any ($7) and 'create' = any ($8) and ($9::bigint is null or entity_id = (select id from own)) as matches,
         created_at, null, 'Activity', id::text as record_key, 'create', entity_id, null::jsonb, null::jsonb from activities`;

const rowsOf = (select: string, id: string): string => `
  (${select} where feed_era is not null and (feed_era, feed_xid, id) > ($1, $2::text::xid8, ${id})
     and (feed_era, feed_xid) < ((select era from state), (select horizon from state))
   order by feed_era, feed_xid, id limit $5)`;

/**
 * SQL: the time of the last change at or before a place, in microseconds since 1970. Its
 * parameters are `placeValues`.
 */
export const lastMadeAt = '(select made_at from last_change($1, $2::text::xid8, $3, $4))';

/**
 * SQL: true if the database has the last change that was read (`Cursor.madeAt`), or if the
 * retention may have removed that change: it removes none of the last 28 days.
 */
export const isKept = (madeAt: string): string =>
  `(coalesce(made_at, 0) = ${madeAt}::bigint or to_timestamp(nullif(${madeAt}::bigint, 0) / 1e6) < now() - interval '28 days')`;

/**
 * Reads the changes and the state of the feed in one statement, so that the rows are of the
 * snapshot that `current_feed` judges. Returns at least one row. The contents of the first
 * `limit` + 1 rows that match are made into text, once. The page ends before the row with which
 * their bytes exceed the maximum, but has at least one change.
 */
const text = `
  with own as materialized (select id from entities where id = $9 and created_at = $13),
  state as materialized (select * from current_feed(pg_current_snapshot())),
  ended as materialized (select l.* from state s, last_change(s.era, s.horizon, 0, 0) l),
  scanned as (
    select *, count(*) filter (where matches) over (order by era, xid, kind, id) as nth
      from (${rowsOf(audit, '$3')} union all ${rowsOf(activity, '$4')} order by era, xid, kind, id limit $5) rows),
  contents as materialized (
    select kind, era, xid, id, matches, nth, created_at, user_guid, resource, record_key, action, entity_id,
           case when matches then before::text end as before,
           case when matches and kind = ${kinds.audit} then after::text
                when matches then (select to_jsonb(activities)::text from activities where activities.id = scanned.id)
            end as after
      from scanned where nth <= $6),
  sized as (
    select *, coalesce(octet_length(before), 0) + coalesce(octet_length(after), 0) as bytes from contents),
  summed as (select *, sum(bytes) over (order by era, xid, kind, id) as sum from sized),
  judged as (select *, nth < $6 and (sum <= $12 or sum = bytes) as fits from summed)
  select s.era as "stateEra", s.since, s.removed_era as "removedEra", s.removed_xid::text::bigint as "removedXid",
         s.horizon::text::bigint as horizon, s.next_xid::text::bigint as "nextXid", s.is_held as "isHeld",
         (select era from ended) as "lastEra", (select xid::text::bigint from ended) as "lastXid",
         (select made_at from ended) as "lastMadeAt", passed.made_at as "passedAt", ${isKept('$11')} as "isKept",
         r.kind, r.era, r.xid::text::bigint as xid, r.id, matches, fits,
         (extract(epoch from created_at) * 1000000)::bigint as "madeAt", created_at as "createdAt",
         user_guid as "userGuid", resource, record_key as key, action, entity_id as "entityId",
         case when fits then before end as before, case when fits then after end as after
    from state s cross join (select ${lastMadeAt} as made_at) passed left join judged r on true
   order by r.era, r.xid, r.kind, r.id`;

/** The state of the feed of a database, in every row of the result. */
export interface FeedState {
  readonly stateEra: number;
  /**
   * Cursors that were made in earlier eras are refused: their data were replaced, or a failover
   * may have lost commits that they passed.
   */
  readonly since: number;
  readonly removedEra: number;
  readonly removedXid: number;
  /** Changes of transactions from this one on are not final. */
  readonly horizon: number;
  /** No transaction has this id yet, or a later one. */
  readonly nextXid: number;
  /** The last final change; null: there is none. */
  readonly lastEra: number | null;
  readonly lastXid: number | null;
  readonly lastMadeAt: number | null;
  /** The time of the last change at or before the cursor; null: there is none. */
  readonly passedAt: number | null;
  /** False if the database lacks the last change that was read; null is false. */
  readonly isKept: boolean | null;
  /** True if there are changes which are not final. */
  readonly isHeld: boolean;
}

/**
 * A row that the statement has read. It has its contents, as JSON texts, if it matches and
 * fits.
 */
export interface ScannedRow {
  readonly kind: number;
  readonly era: number;
  readonly xid: number;
  readonly id: number;
  readonly matches: boolean;
  readonly madeAt: number;
  /**
   * False for the first row that exceeds the number or the bytes of the page, and for the rows
   * after it.
   */
  readonly fits: boolean;
  readonly createdAt: string;
  readonly userGuid: string | null;
  readonly resource: string;
  readonly key: string;
  readonly action: (typeof changeActions)[number];
  readonly entityId: number | null;
  readonly before: string | null;
  readonly after: string | null;
}

/**
 * Selects the changes that follow a cursor: at most `limit` + 1 that match, and those between
 * them that do not; none with limit 0.
 * @param maxBytes maximum bytes of the contents of the changes that match; a first change that
 *   is larger is selected alone
 */
export function changeStatement(
  after: Cursor,
  { resources, actions = changeActions, ownEntity }: ChangeFilter,
  limit: number,
  maxBytes: number,
): Statement<FeedState & ScannedRow> {
  const scan = limit === 0 ? 0 : maxScanned;
  const { id = null, since = null } = ownEntity ?? {};
  const filter = [resources, actions, id, ownedResources];
  const page = [after.madeAt, maxBytes];
  const values = [...placeValues(after), scan, limit + 1, ...filter, ...page, since];

  return { ...preparedStatement<FeedState & ScannedRow>(text, values), isHeavy: limit > 100 };
}

/**
 * A place as values of a statement: the era, the transaction, and the last ids before it of
 * either table.
 */
export function placeValues({ era, xid, kind, id }: Cursor): unknown[] {
  const lastId = (own: number): string =>
    kind < own ? '0' : kind === own ? String(id) : String(Number.MAX_SAFE_INTEGER);
  return [era, String(xid), lastId(kinds.audit), lastId(kinds.activity)];
}
