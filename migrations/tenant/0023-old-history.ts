import { Migration } from '@mikro-orm/migrations';

/** The append-only tables, and the function that removes old rows of each. */
const removals = { activities: 'remove_old_activities', audit_log: 'remove_old_audit_entries' };

/**
 * Lets the owner of the tables remove old rows of the append-only tables, for `tenant retention`. There is no other way
 * past the trigger:
 *
 *   1. The trigger lets a `delete` pass only if `app.removal` names the table and the statement runs with the rights of
 *      the owner. The functions have both. A login with a privilege too many, which can set `app.removal`, has not the
 *      rights of the owner; an operator with psql has them, but does not set it by mistake.
 *   2. Nobody but the owner may execute the functions, so the login of the tenant can remove nothing.
 *      The functions set it in their bodies: as an option of a function, only a superuser may set such a parameter.
 *   3. No function removes a row of the last 28 days, whatever it is called with.
 *
 * The trigger function has no `search_path` of its own, as before, so that the migration is compatible: all names in it
 * are qualified.
 *
 * A function returns what it has removed, so that its caller can compare the rows with an archive before the commit.
 */
export class OldHistory extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create or replace function refuse_change() returns trigger language plpgsql as $$
      begin
        if tg_op = 'DELETE' and pg_catalog.current_setting('app.removal', true) operator(pg_catalog.=) tg_table_name::text
          and current_user operator(pg_catalog.=)
              (select pg_catalog.pg_get_userbyid(relowner) from pg_catalog.pg_class c where c.oid = tg_relid) then
          return null;
        end if;
        raise exception '% is append-only', tg_table_name using errcode = 'insufficient_privilege';
      end $$`);
    for (const [table, name] of Object.entries(removals)) {
      this.addSql(`
        create function ${name}(first_id bigint, last_id bigint, cutoff timestamptz) returns setof ${table}
          language plpgsql security definer
          set search_path = pg_catalog, public, pg_temp as $$
        begin
          if cutoff > now() - interval '28 days' then
            raise exception 'rows of the last 28 days are not removed' using errcode = 'insufficient_privilege';
          end if;
          perform set_config('app.removal', '${table}', true);
          return query delete from ${table}
            where id between first_id and last_id and created_at < cutoff returning *;
          perform set_config('app.removal', '', true);
        end $$`);
      this.addSql(`revoke execute on function ${name}(bigint, bigint, timestamptz) from public`);
    }
  }

  override down(): void {
    for (const name of Object.values(removals)) this.addSql(`drop function ${name}(bigint, bigint, timestamptz)`);
    this.addSql(`
      create or replace function refuse_change() returns trigger language plpgsql as $$
      begin
        raise exception '% is append-only', tg_table_name using errcode = 'insufficient_privilege';
      end $$`);
  }
}
