import { Migration } from '@mikro-orm/migrations';
import { currentFeed, eraOfTimeline, feedEra, noteTimeline, serverTimeline } from './0030-feed-timeline.ts';

/**
 * Finds the last change at or before a place of the feed, which the cursor of that place names with the time at which it
 * was made. A server whose files were put back to a snapshot, or whose standby was promoted, does not have the change if
 * it was made afterwards. That replaces the era that a promotion began. Cursors from before this migration expire.
 */
export class FeedProofs extends Migration {
  static readonly compatible = false;

  override up(): void {
    this.addSql(lastChange);
    this.addSql('drop function current_feed(pg_snapshot)');
    this.addSql(currentFeed.replace(/if not pg_is_in_recovery.*?end if;/s, ''));
    this.addSql('drop function note_timeline()');
    this.addSql(feedEra('i.feed_era'));
    this.addSql('drop function server_timeline()');
    this.addSql('alter table tenant_identity drop column feed_timeline');
    this.addSql(`update webhooks set position = position || '-0'`);
  }

  override down(): void {
    this.addSql(`update webhooks set position = regexp_replace(position, '-[^-]*$', '')`);
    this.addSql('alter table tenant_identity add column feed_timeline bigint not null default 0');
    this.addSql(
      `comment on column tenant_identity.feed_timeline is 'timeline of the write-ahead log that feed_era belongs to'`,
    );
    this.addSql(serverTimeline);
    this.addSql('update tenant_identity set feed_timeline = server_timeline()');
    this.addSql(feedEra(eraOfTimeline));
    this.addSql(noteTimeline);
    this.addSql('drop function current_feed(pg_snapshot)');
    this.addSql(currentFeed);
    this.addSql('drop function last_change(bigint, xid8, bigint, bigint)');
  }
}

/** The last row of a table at or before a place; changes of one transaction are ordered by `kind`. */
const lastOf = (table: string, kind: number, id: string): string => `
  (select t.feed_era, t.feed_xid, ${kind} as kind, t.created_at from public.${table} t
    where t.feed_era is not null and (t.feed_era, t.feed_xid, t.id) <= (at_era, at_xid, ${id})
    order by t.feed_era desc, t.feed_xid desc, t.id desc limit 1)`;

/**
 * No row: there is none at or before the place. The time is in microseconds since 1970. The planner estimates a
 * comparison of rows by their first column, and would read the tables whole.
 */
const lastChange = `
  create function last_change(
      at_era bigint, at_xid xid8, audit_id bigint, activity_id bigint, out era bigint, out xid xid8, out made_at bigint)
    returns setof record language plpgsql stable rows 1 set enable_seqscan = off as $$
  begin
    return query
      select l.feed_era, l.feed_xid, (extract(epoch from l.created_at) * 1000000)::bigint
        from (${lastOf('audit_log', 1, 'audit_id')} union all ${lastOf('activities', 2, 'activity_id')}) l
       order by l.feed_era desc, l.feed_xid desc, l.kind desc limit 1;
  end $$`;
