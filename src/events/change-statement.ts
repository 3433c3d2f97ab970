import { changeActions } from '../audit/audit-log.ts';
import { preparedStatement, type Statement } from '../postgres/statement.ts';
import type { Cursor } from './change-cursor.ts';
import { type ChangeFilter, ownedResources } from './change-sources.ts';

/** Kinds of rows, by which changes of one transaction are ordered. */
const kinds = { audit: 1, activity: 2 };
/** At most so many changes are looked at by one query. */
export const maxScanned = 1_000;

/** Columns of both tables. `matches` says whether the filter lets the row pass. */
const audit = `
  select ${kinds.audit} as kind, feed_era as era, feed_xid as xid, id,
         resource = any ($7) and action = any ($8)
           and ($9::bigint is null or entity_id = $9 or resource <> all ($10)) as matches,
         created_at, user_guid, resource, record_key, action, entity_id, before, after from audit_log`;
const activity = `
  select ${kinds.activity}, feed_era, feed_xid, id,
         'Activity' = any ($7) and 'create' = any ($8) and ($9::bigint is null or entity_id = $9) as matches,
         created_at, null, 'Activity', id::text as record_key, 'create', entity_id, null, to_jsonb(activities) from activities`;

const rowsOf = (select: string, id: string): string => `
  (${select} where feed_era is not null and (feed_era, feed_xid, id) > ($1, $2::text::xid8, ${id})
     and (feed_era, feed_xid) < ((select era from state), (select horizon from state))
   order by feed_era, feed_xid, id limit $5)`;

/** One statement, so that the rows are of the snapshot that `current_feed` judges. It returns at least one row. */
const text = `
  with state as materialized (select * from current_feed(pg_current_snapshot())),
  scanned as (
    select *, count(*) filter (where matches) over (order by era, xid, kind, id) as nth
      from (${rowsOf(audit, '$3')} union all ${rowsOf(activity, '$4')} order by era, xid, kind, id limit $5) rows)
  select s.era as "stateEra", s.since, s.removed_era as "removedEra", s.removed_xid::text::bigint as "removedXid",
         s.horizon::text::bigint as horizon, s.next_xid::text::bigint as "nextXid", s.is_held as "isHeld",
         r.kind, r.era, r.xid::text::bigint as xid, r.id, matches, created_at as "createdAt", user_guid as "userGuid",
         resource, record_key as key, action, entity_id as "entityId",
         case when matches then before end as before, case when matches then after end as after
    from state s left join scanned r on nth <= $6
   order by r.era, r.xid, r.kind, r.id`;

/** What the database says of its feed, in every row of the result. */
export interface FeedState {
  readonly stateEra: number;
  /** Cursors of earlier eras are of data that were replaced, or may be of commits that a failover has lost. */
  readonly since: number;
  readonly removedEra: number;
  readonly removedXid: number;
  /** Changes of transactions from this one on are not final. */
  readonly horizon: number;
  /** No transaction has this id yet, or a later one. */
  readonly nextXid: number;
  /** True if there are changes which are not final. */
  readonly isHeld: boolean;
}

/** A row that was looked at. Its contents are there if it matches. */
export interface ScannedRow {
  readonly kind: number;
  readonly era: number;
  readonly xid: number;
  readonly id: number;
  readonly matches: boolean;
  readonly createdAt: string;
  readonly userGuid: string | null;
  readonly resource: string;
  readonly key: string;
  readonly action: (typeof changeActions)[number];
  readonly entityId: number | null;
  readonly before: Record<string, unknown> | null;
  readonly after: Record<string, unknown> | null;
}

/**
 * Reads what follows a cursor, at most `limit` + 1 rows that match, and the rows in between that do not; with limit 0
 * no rows.
 */
export function changeStatement(
  { era, xid, kind, id }: Cursor,
  { resources, actions = changeActions, ownEntity }: ChangeFilter,
  limit: number,
): Statement {
  const afterOf = (own: number): string =>
    kind < own ? '0' : kind === own ? String(id) : String(Number.MAX_SAFE_INTEGER);
  const scan = limit === 0 ? 0 : maxScanned;
  const places = [era, String(xid), afterOf(kinds.audit), afterOf(kinds.activity)];
  return preparedStatement(text, [...places, scan, limit + 1, resources, actions, ownEntity ?? null, ownedResources]);
}
