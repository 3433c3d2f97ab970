import { Migration } from '@mikro-orm/migrations';

/** True for an update of a user that is more than a login. */
const isChange = `((to_jsonb(old) - 'last_login_at') is distinct from (to_jsonb(new) - 'last_login_at'))`;

/** The columns whose changes the audit log records, as migration 0017 names them. */
const audited =
  'id guid email first_name last_name role scope entity_id invited_at confirmed_at disabled_at created_at'.split(' ');

const auditUpdate = (condition: string): string => `
  create or replace trigger audit_update after update on users for each row when ${condition}
    execute function audit_change(${['User', ...audited].map(name => `'${name}'`).join(', ')})`;

/**
 * Stores the time of the last login of each user, so that an index has the order of the users by it. Without it, the
 * list of users first searches the newest session of each user of the tenant.
 *
 * A trigger of `sessions` sets the time, so that it counts the logins of the build before, too. A login is no change of
 * the user for the caches and the audit log.
 */
export class LastLogins extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('alter table users add column last_login_at timestamptz');
    this.addSql('alter table users disable trigger user');
    this.addSql(`
      update users set last_login_at = newest.created_at
        from (select user_id, max(created_at) as created_at from sessions group by user_id) newest
       where newest.user_id = users.id`);
    this.addSql('alter table users enable trigger user');
    this.addSql('create index users_last_login_at_index on users (tenant_id, last_login_at, id)');
    this.addSql(`
      create function note_login() returns trigger language plpgsql security definer
        set search_path = pg_catalog, public, pg_temp as $$
      begin
        update users set last_login_at = greatest(last_login_at, new.created_at) where id = new.user_id;
        return null;
      end $$`);
    this.addSql('create trigger note_login after insert on sessions for each row execute function note_login()');
    this.addSql(`
      create or replace trigger announce_change after delete on users for each row
        execute function announce_change('users', 'id')`);
    this.addSql(`
      create trigger announce_update after update on users for each row when ${isChange}
        execute function announce_change('users', 'id')`);
    this.addSql(auditUpdate(isChange));
  }

  override down(): void {
    this.addSql(auditUpdate('(old.* is distinct from new.*)'));
    this.addSql('drop trigger announce_update on users');
    this.addSql(`
      create or replace trigger announce_change after update or delete on users for each row
        execute function announce_change('users', 'id')`);
    this.addSql('drop trigger note_login on sessions');
    this.addSql('drop function note_login');
    this.addSql('alter table users drop column last_login_at');
  }
}
