import { Migration } from '@mikro-orm/migrations';

/** The processes of the installation, and how they share the connections to each PostgreSQL server. */
export class ConnectionGrants extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table processes (
        id uuid primary key,
        kind text not null check (kind in ('service', 'command')),
        host text not null,
        pid integer not null,
        build text not null,
        started_at timestamptz not null default now(),
        seen_at timestamptz not null default now()
      )`);
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

  override down(): void {
    this.addSql('drop table connection_grants, connection_servers, processes');
  }
}
