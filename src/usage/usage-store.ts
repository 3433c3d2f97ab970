import { type ControlDatabase, queryControl } from '../control/database.ts';
import type { ProcessIdentity } from '../control/process-identity.ts';
import type { TenantUsage } from './usage-counts.ts';

/** Counts that are written in one statement. */
export interface UsageBatch {
  /** The first batch of a writer has number 1, and each further one the next number. */
  readonly number: number;
  readonly counts: readonly TenantUsage[];
  /** Unix time in milliseconds: with this batch, all requests that ended before are written. */
  readonly countedUntil: number;
  /** True for the last batch of the writer. */
  readonly isLast: boolean;
}

/** The usage that the control database records. */
export type UsageStore = ReturnType<typeof createUsageStore>;

/** How long hours are recorded. 10,000 tenants that are used in each hour are 24 million rows of about 100 bytes. */
const usageDays = 100;

/**
 * One statement for all tenants: the number of the batch and its counts are stored together or not at all. Rows are
 * locked in the order of their key, so that batches of several processes do not block each other for good.
 */
const writeText = `
  with writer as (
    insert into usage_writers as w (id, process, host, pid, batch, requests, counted_until, ended_at)
    values ($1, $2, $3, $4, $5, $6, to_timestamp($7::float8 / 1000), case when $8 then now() end)
        on conflict (id) do update
       set batch = excluded.batch, requests = w.requests + excluded.requests,
           counted_until = excluded.counted_until, written_at = now(), ended_at = excluded.ended_at
     where w.batch < excluded.batch
    returning id
  ), counted as (
    insert into tenant_usage as u (tenant_id, hour, requests, refused, writes, response_bytes, database_ms)
    select t.id, to_timestamp(c.hour / 1000), c.requests, c.refused, c.writes, c.response_bytes, c.database_ms
      from writer,
           unnest($9::uuid[], $10::float8[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::float8[])
             as c (tenant, hour, requests, refused, writes, response_bytes, database_ms)
      join tenants t on t.guid = c.tenant
     order by 1, 2
        on conflict (tenant_id, hour) do update
       set requests = u.requests + excluded.requests, refused = u.refused + excluded.refused,
           writes = u.writes + excluded.writes, response_bytes = u.response_bytes + excluded.response_bytes,
           database_ms = u.database_ms + excluded.database_ms
  )
  select from writer`;

/**
 * Of two processes that ask at the same time, the second one waits for the row, finds that it was changed, and gets
 * nothing.
 */
const startSampleText = `
  with next as (
    select coalesce(
             (select id from tenants where status = 'active' and id > last_tenant_id order by id limit 1),
             case when round_started_at < date_trunc('hour', now(), 'UTC')
                  then (select id from tenants where status = 'active' order by id limit 1) end) as id
      from usage_sampling
  ), started as (
    update usage_sampling s
       set holder = $1, claimed_at = now(), last_tenant_id = coalesce(next.id, last_tenant_id),
           round_started_at = case when next.id <= last_tenant_id or last_tenant_id = 0 then now()
                                   else round_started_at end
      from next
     where (holder is null or holder = $1 or claimed_at < now() - interval '30 s')
       and claimed_at < now() - interval '1 s'
    returning next.id
  )
  select t.guid from started join tenants t using (id)`;

const recordSizeText = `
  insert into tenant_usage as u (tenant_id, hour, database_bytes)
  select id, date_trunc('hour', now(), 'UTC'), $2 from tenants where guid = $1
      on conflict (tenant_id, hour) do update set database_bytes = excluded.database_bytes`;

/** A part at a time, so that no statement takes long. */
const removeOldText = `
  with old_writers as (delete from usage_writers where written_at < now() - interval '${usageDays} days')
  delete from tenant_usage
   where ctid = any (array(select ctid from tenant_usage where hour < now() - interval '${usageDays} days' limit 5000))`;

/** @param writer a new id for each call: batches are numbered within it */
export function createUsageStore(control: ControlDatabase, process: ProcessIdentity, writer: string) {
  const { id, host, pid } = process;
  return {
    /** Adds a batch. A batch that was written before has no effect. */
    write: async ({ number, counts, countedUntil, isLast }: UsageBatch): Promise<void> => {
      const requests = counts.reduce((sum, each) => sum + each.requests, 0);
      const column = (name: keyof TenantUsage) => counts.map(each => each[name]);
      await queryControl(control, 'usage_write', writeText, [
        ...[writer, id, host, pid, number, requests, countedUntil, isLast],
        ...[column('tenant'), column('hour'), column('requests'), column('refused'), column('writes')],
        ...[column('responseBytes'), column('databaseMs')],
      ]);
    },
    /**
     * Returns the tenant whose database is the next to be sampled; undefined when another process samples, or when all
     * tenants have a size of this hour. No two calls within a second get a tenant, in all processes together.
     */
    startSample: async (): Promise<string | undefined> => {
      const [row] = await queryControl<{ guid: string }>(control, 'usage_start_sample', startSampleText, [writer]);
      return row?.guid;
    },
    /** Lets another process sample at once. */
    releaseSamples: async (): Promise<void> => {
      const text = 'update usage_sampling set holder = null where holder = $1';
      await queryControl(control, 'usage_release_samples', text, [writer]);
    },
    /** Stores the size of a tenant's database, as that of this hour. */
    recordSize: async (tenant: string, bytes: number): Promise<void> => {
      await queryControl(control, 'usage_record_size', recordSizeText, [tenant, bytes]);
    },
    /** Removes a part of what is older than 100 days. */
    removeOld: async (): Promise<void> => {
      await queryControl(control, 'usage_remove_old', removeOldText, []);
    },
  };
}
