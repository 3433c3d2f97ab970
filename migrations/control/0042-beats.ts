import { Migration } from '@mikro-orm/migrations';

/** Processes beat, and share the connections to each server by their number; one master key is the present one. */
export class Beats extends Migration {
  static readonly compatible = false;

  override up(): void {
    this.addSql('drop table connection_grants, connection_servers');
    this.addSql('alter table processes add column connection_budget integer');
    this.addSql(
      `comment on column processes.seen_at is 'the last beat: a process runs while it is younger than five seconds'`,
    );
    this.addSql(`comment on column processes.connection_budget is 'CONNECTION_BUDGET of the process'`);
    this.addSql('alter table installation add column key_fingerprint text');
    this.addSql(
      `comment on column installation.key_fingerprint is 'fingerprint of the master key that seals the secrets; null before the first secret'`,
    );
  }

  override down(): void {
    this.addSql('alter table installation drop column key_fingerprint');
    this.addSql('alter table processes drop column connection_budget');
    this.addSql(`comment on column processes.seen_at is 'for people; no process decides by it, because clocks jump'`);
    this.addSql(`
      create table connection_servers (
        server text primary key,
        version bigint not null default 0
      )`);
    this.addSql(
      `comment on column connection_servers.server is 'the identity of a PostgreSQL server, or its address while the identity is not known'`,
    );
    this.addSql(`
      create table connection_grants (
        server text not null references connection_servers,
        process uuid not null,
        granted integer not null check (granted >= 0),
        held integer not null,
        wanted integer not null,
        reserved integer not null,
        budget integer not null,
        heartbeat bigint not null,
        primary key (server, process)
      )`);
    this.addSql(
      `comment on table connection_grants is 'a row counts until the connections of its process are known to be closed, so it may outlive the row of the process'`,
    );
  }
}
