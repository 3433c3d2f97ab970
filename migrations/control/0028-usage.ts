import { Migration } from '@mikro-orm/migrations';

/** What each tenant used in each hour, the processes that count it, and the turn of sampling sizes of databases. */
export class Usage extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table tenant_usage (
        tenant_id bigint not null references tenants on delete cascade,
        hour timestamptz not null,
        requests bigint not null default 0,
        refused bigint not null default 0,
        writes bigint not null default 0,
        response_bytes bigint not null default 0,
        database_ms double precision not null default 0,
        database_bytes bigint,
        primary key (tenant_id, hour)
      )`);
    // Rows arrive almost in the order of their hours.
    this.addSql('create index tenant_usage_hour_index on tenant_usage using brin (hour)');
    this.addSql(`comment on column tenant_usage.hour is 'begin of the hour, UTC'`);
    this.addSql(
      `comment on column tenant_usage.refused is 'requests with status 429 or 503, which are also in requests'`,
    );
    this.addSql(
      `comment on column tenant_usage.database_bytes is 'last size of the database in the hour; null: not sampled'`,
    );
    this.addSql(`
      create table usage_writers (
        id uuid primary key,
        process uuid not null,
        host text not null,
        pid integer not null,
        batch bigint not null,
        requests bigint not null,
        counted_until timestamptz not null,
        started_at timestamptz not null default now(),
        written_at timestamptz not null default now(),
        ended_at timestamptz
      )`);
    this.addSql(
      `comment on column usage_writers.batch is 'number of the last batch: a batch that is sent again has no effect'`,
    );
    this.addSql(`comment on column usage_writers.requests is 'sum of all batches'`);
    this.addSql(
      `comment on column usage_writers.counted_until is 'requests that ended before are written, by the clock of the process'`,
    );
    this.addSql(
      `comment on column usage_writers.ended_at is 'when the last batch was written; null: the process runs, or was killed'`,
    );
    this.addSql(`
      create table usage_sampling (
        only_row boolean primary key default true constraint usage_sampling_only_row_check check (only_row),
        holder uuid,
        claimed_at timestamptz not null default '-infinity',
        last_tenant_id bigint not null default 0,
        round_started_at timestamptz not null default '-infinity'
      )`);
    this.addSql('insert into usage_sampling default values');
    this.addSql(
      `comment on column usage_sampling.holder is 'the process that samples; another one may after 30 s without a claim'`,
    );
  }

  override down(): void {
    this.addSql('drop table usage_sampling, usage_writers, tenant_usage');
  }
}
