import { Migration } from '@mikro-orm/migrations';

/** Registrations: password and names belong to the token of one registration, not to its e-mail address. */
export class Registrations extends Migration {
  override up(): void {
    this.addSql(`
      create table registrations (
        hash bytea primary key,
        tenant_id bigint not null,
        user_id bigint not null,
        password_hash text not null,
        first_name text not null,
        last_name text not null,
        expires_at timestamptz not null,
        created_at timestamptz not null default now(),
        constraint registrations_user_fkey foreign key (tenant_id, user_id) references users (tenant_id, id) on delete cascade
      )`);
    this.addSql(`comment on column registrations.hash is 'SHA-256 of the token that the address received'`);
    this.addSql(`create index registrations_user_id_index on registrations (user_id)`);
    this.addSql(`create index registrations_expires_at_index on registrations (expires_at)`);
    // A token as old as its user was sent for the registration that the user has the password of. A newer token was
    // sent for another registration, whose password was not stored: its owner must register again.
    this.addSql(`
      insert into registrations (hash, tenant_id, user_id, password_hash, first_name, last_name, expires_at, created_at)
      select t.hash, t.tenant_id, t.user_id, u.password_hash, u.first_name, u.last_name, t.expires_at, t.created_at
        from mail_tokens t join users u on u.id = t.user_id
       where t.purpose = 'confirm' and u.confirmed_at is null and t.created_at = u.created_at`);
    this.addSql(`delete from mail_tokens where purpose = 'confirm'`);
  }

  override down(): void {
    this.addSql('drop table registrations');
  }
}
