import { Migration } from '@mikro-orm/migrations';

/** Migration runs over the fleet, the outcome for each tenant, and the fingerprint of the schema at head. */
export class MigrationRuns extends Migration {
  override up(): void {
    this.addSql(`alter table tenants add schema_fingerprint text`);
    this.addSql(`
      create table schema_fingerprints (
        server_id smallint not null references servers on delete cascade,
        digest text not null,
        head text not null,
        fingerprint text not null,
        objects jsonb not null,
        created_at timestamptz not null default now(),
        constraint schema_fingerprints_pkey primary key (server_id, digest)
      )`);
    this.addSql(`comment on table schema_fingerprints is 'of the templates; one for each set of migrations'`);
    this.addSql(`
      create table migration_runs (
        id bigint generated always as identity primary key,
        state text not null default 'running'
          constraint migration_runs_state_check check (state in ('running', 'succeeded', 'failed', 'halted', 'abandoned')),
        head text not null,
        concurrency integer not null,
        canary integer,
        max_failures integer,
        requested_by text not null,
        started_at timestamptz not null default now(),
        finished_at timestamptz
      )`);
    this.addSql(`create index migration_runs_running_index on migration_runs (id) where state = 'running'`);
    this.addSql(`
      create table migration_outcomes (
        run_id bigint not null references migration_runs on delete cascade,
        tenant_id bigint not null references tenants on delete cascade,
        state text not null default 'pending' constraint migration_outcomes_state_check
          check (state in ('pending', 'running', 'migrated', 'current', 'failed', 'skipped')),
        from_version text,
        to_version text,
        ms integer,
        error text,
        started_at timestamptz,
        finished_at timestamptz,
        constraint migration_outcomes_pkey primary key (run_id, tenant_id)
      )`);
    this.addSql(`create index migration_outcomes_tenant_id_index on migration_outcomes (tenant_id)`);
  }

  override down(): void {
    this.addSql('drop table migration_outcomes, migration_runs, schema_fingerprints');
    this.addSql('alter table tenants drop schema_fingerprint');
  }
}
