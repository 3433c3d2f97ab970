import { Migration } from '@mikro-orm/migrations';

/**
 * Gives the feed of changes another era after a failover of PostgreSQL: a standby that was promoted may lack the last
 * commits, and uses the ids of their transactions again. A promotion begins a timeline of the write-ahead log, in which
 * nobody has written before. So rows have the next era as soon as the timeline is another one than the database has
 * noted. The first reader notes it, and that changes the era of no row.
 */
export class FeedTimeline extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table tenant_identity add column feed_timeline bigint not null default 0');
    this.addSql(
      `comment on column tenant_identity.feed_timeline is 'timeline of the write-ahead log that feed_era belongs to'`,
    );
    this.addSql(serverTimeline);
    this.addSql('update tenant_identity set feed_timeline = server_timeline()');
    this.addSql(feedEra(eraOfTimeline));
    this.addSql(noteTimeline);
    this.addSql(currentFeed);
  }

  override down(): void {
    this.addSql('drop function current_feed(pg_snapshot)');
    this.addSql('drop function note_timeline()');
    this.addSql(feedEra('i.feed_era'));
    this.addSql('drop function server_timeline()');
    this.addSql('alter table tenant_identity drop column feed_timeline');
  }
}

export const serverTimeline = `
      create function server_timeline() returns bigint language sql as $$
        select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint $$`;

/** The era that rows have now. */
export const eraOfTimeline = 'i.feed_era + (i.feed_timeline <> public.server_timeline())::integer';

export const noteTimeline = `
      create function note_timeline() returns void language sql security definer
        set search_path = pg_catalog, public, pg_temp as $$
        update tenant_identity
           set feed_era = feed_era + 1, feed_since = feed_era + 1, feed_timeline = server_timeline()
         where feed_timeline <> server_timeline() $$`;

// The planner estimates a comparison of rows by their first column: feed_state would read the tables whole.
export const currentFeed = `
      create function current_feed(
          snapshot pg_snapshot, out era bigint, out since bigint, out removed_era bigint, out removed_xid xid8,
          out horizon xid8, out next_xid xid8, out is_held boolean)
        language plpgsql set enable_seqscan = off as $$
      begin
        if not pg_is_in_recovery() and exists (
            select from public.tenant_identity where feed_timeline <> public.server_timeline()) then
          perform public.note_timeline();
        end if;
        select * into era, since, removed_era, removed_xid, horizon, next_xid, is_held from public.feed_state(snapshot);
      end $$`;

/** @param era SQL of the era that rows have now; `i` is the row of `tenant_identity` */
export const feedEra = (era: string): string => `
  create or replace function feed_era() returns bigint language plpgsql stable as $$
  begin
    return (select ${era} from public.tenant_identity i);
  end $$`;
