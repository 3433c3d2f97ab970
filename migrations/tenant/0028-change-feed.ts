import { Migration } from '@mikro-orm/migrations';

/** The tables whose rows are the changes of the feed, and the functions that remove old rows of them (0023). */
const removals = { activities: 'remove_old_activities', audit_log: 'remove_old_audit_entries' };

/**
 * Gives audit entries and activities the position that the feed of changes orders them by: the era of the database, and
 * the id of the transaction. The proof that a cursor skips nothing is in `src/events/change-reader.ts`.
 *
 * Ids of transactions count for one server. So the database has an era, which a run of `src/operator/databases` raises
 * before it makes another database the current one, while nobody is connected to that.
 *
 * Rows from before this migration have no era, and are not in the feed. They are not rewritten.
 */
export class ChangeFeed extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      alter table tenant_identity
        add column feed_era bigint not null default 0,
        add column feed_since bigint not null default 0,
        add column removed_era bigint not null default 0,
        add column removed_xid xid8 not null default '0'`);
    for (const [column, comment] of Object.entries(comments))
      this.addSql(`comment on column tenant_identity.${column} is '${comment}'`);
    // Cursors from before a rollback of this migration skip what was changed until it ran again: they expire.
    this.addSql(`
      update tenant_identity
         set feed_era = epoch, feed_since = epoch, removed_era = epoch, removed_xid = pg_current_xact_id()`);
    this.addSql(`
      create function feed_era() returns bigint language plpgsql stable as $$
      begin
        return (select i.feed_era from public.tenant_identity i);
      end $$`);
    for (const [table, remove] of Object.entries(removals)) {
      this.addSql(`alter table ${table} add column feed_era bigint, add column feed_xid xid8`);
      this.addSql(`
        alter table ${table}
          alter column feed_era set default feed_era(), alter column feed_xid set default pg_current_xact_id()`);
      this.addSql(`
        create index ${table}_feed_index on ${table} (feed_era, feed_xid, id) where feed_era is not null`);
      this.addSql(removal(table, remove, noteRemoved));
    }
    this.addSql(feedState);
  }

  override down(): void {
    this.addSql('drop function feed_state(pg_snapshot)');
    for (const [table, remove] of Object.entries(removals)) {
      this.addSql(`alter table ${table} drop column feed_era, drop column feed_xid`);
      this.addSql(removal(table, remove, ''));
    }
    this.addSql('drop function feed_era()');
    this.addSql(`
      alter table tenant_identity
        drop column feed_era, drop column feed_since, drop column removed_era, drop column removed_xid`);
  }
}

const comments = {
  feed_era: 'era of the changes that are made now: it changes only while nobody is connected',
  feed_since: 'first era of these data: cursors of earlier ones belong to data that were replaced',
  removed_era: 'era of the last change that the retention has removed',
  removed_xid: 'transaction of the last change that the retention has removed',
};

/** Records how far the retention has removed changes. */
const noteRemoved = `
  noted as (
    update tenant_identity i set removed_era = r.feed_era, removed_xid = r.feed_xid
      from (select feed_era, feed_xid from removed
             where feed_era is not null order by feed_era desc, feed_xid desc limit 1) r
     where (i.removed_era, i.removed_xid) < (r.feed_era, r.feed_xid)),`;

/** The function of migration 0023, which removes old rows of an append-only table, and what it does beside that. */
const removal = (table: string, name: string, beside: string): string => `
  create or replace function ${name}(first_id bigint, last_id bigint, cutoff timestamptz) returns setof ${table}
    language plpgsql security definer
    set search_path = pg_catalog, public, pg_temp as $$
  begin
    if cutoff > now() - interval '28 days' then
      raise exception 'rows of the last 28 days are not removed' using errcode = 'insufficient_privilege';
    end if;
    perform set_config('app.removal', '${table}', true);
    return query
      with removed as (
        delete from ${table} where id between first_id and last_id and created_at < cutoff returning *),
      ${beside}
      result as (select * from removed)
      select * from result;
    perform set_config('app.removal', '', true);
  end $$`;

/** True if the feed has rows from a transaction on, which `horizon` holds back. */
const isHeld = Object.keys(removals)
  .map(
    table => `exists (
      select from public.${table} t
       where t.feed_era is not null and (t.feed_era, t.feed_xid) >= (era, horizon))`,
  )
  .join(' or ');

/**
 * Says up to which transaction the rows that a snapshot sees are final. Transactions of other databases of the server
 * hold nothing back, as far as it is certain that they are of others; that is looked up only when rows wait for it.
 */
const feedState = `
  create function feed_state(
      snapshot pg_snapshot, out era bigint, out since bigint, out removed_era bigint, out removed_xid xid8,
      out horizon xid8, out next_xid xid8, out is_held boolean)
    language plpgsql as $$
  declare
    elsewhere integer[];
  begin
    select i.feed_era, i.feed_since, i.removed_era, i.removed_xid into era, since, removed_era, removed_xid
      from public.tenant_identity i;
    horizon := pg_snapshot_xmin(snapshot);
    next_xid := pg_snapshot_xmax(snapshot);
    is_held := ${isHeld};
    if not is_held or pg_is_in_recovery() then return; end if;
    -- The order of the two queries matters: see I3 of the proof.
    elsewhere := array(select a.pid from pg_stat_activity a join pg_database d on d.oid = a.datid
                        where d.datname <> current_database());
    select coalesce(min(x::text::bigint)::text::xid8, next_xid) into horizon
      from pg_snapshot_xip(snapshot) x
     where not exists (
       select from pg_locks l
        where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted
          and l.transactionid = x::xid and l.pid = any (elsewhere));
    is_held := ${isHeld};
  end $$`;
