import { Migration } from '@mikro-orm/migrations';

/** Moves of tenants to other databases, and the fences behind which their requests wait meanwhile. */
export class TenantMoves extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table tenant_moves (
        id bigint generated always as identity primary key,
        tenant_id bigint not null references tenants on delete cascade,
        state text not null default 'planned' constraint tenant_moves_state_check check (state in
          ('planned', 'prepared', 'copying', 'fenced', 'verified', 'switched', 'settling', 'settled', 'aborting', 'aborted')),
        from_server_id smallint not null references servers,
        from_database text not null,
        from_role text not null,
        to_server_id smallint not null references servers,
        to_database text not null,
        to_role text not null,
        to_password bytea not null,
        marker uuid not null default gen_random_uuid(),
        epoch bigint not null,
        keep_seconds integer not null,
        max_pause_ms integer not null,
        bytes bigint,
        rows bigint,
        copy_ms integer,
        pause_ms integer,
        checksums jsonb,
        error text,
        created_at timestamptz not null default now(),
        updated_at timestamptz not null default now(),
        fenced_at timestamptz,
        switched_at timestamptz,
        reversible_until timestamptz,
        ended_at timestamptz
      )`);
    this.addSql(`comment on column tenant_moves.to_password is 'sealed, as tenants.role_password'`);
    this.addSql(
      `comment on column tenant_moves.epoch is 'number of the run that works on the move: a run with a smaller one can change neither this row nor a database'`,
    );
    this.addSql(
      `comment on column tenant_moves.marker is 'what a closed database has in the place of the guid of the tenant'`,
    );
    this.addSql(`
      create unique index tenant_moves_unfinished_unique on tenant_moves (tenant_id)
        where state not in ('switched', 'settling', 'settled', 'aborted')`);
    this.addSql('create index tenant_moves_tenant_id_index on tenant_moves (tenant_id, id desc)');
    this.addSql(`
      create table tenant_fences (
        tenant_guid uuid primary key references tenants (guid) on delete cascade,
        id uuid not null constraint tenant_fences_id_unique unique,
        closed boolean not null default false,
        to_server_id smallint not null references servers,
        begun_at timestamptz not null default clock_timestamp()
      )`);
    this.addSql(
      `comment on column tenant_fences.closed is 'false: the processes only prepare for it; true: requests of the tenant wait'`,
    );
    this.addSql(`
      create table fence_acknowledgements (
        fence uuid not null references tenant_fences (id) on delete cascade,
        process uuid not null,
        closed boolean not null,
        acknowledged_at timestamptz not null default clock_timestamp(),
        primary key (fence, process, closed)
      )`);
    this.addSql(`
      create trigger announce_change after insert or update or delete on tenant_fences
        for each row execute function announce_change('fences', 'tenant_guid')`);
    this.addSql(`
      create trigger announce_truncate after truncate on tenant_fences execute function announce_truncate()`);
  }

  override down(): void {
    this.addSql('drop table fence_acknowledgements, tenant_fences, tenant_moves');
  }
}
