import { type ControlDatabase, queryControl, transactControl } from '../../control/database.ts';
import type { TenantUsage } from './usage-counts.ts';

/** The usage that the control database records. */
export type UsageStore = ReturnType<typeof createUsageStore>;

/**
 * The time for which the counts of an hour are kept. 10,000 tenants that are used in each hour
 * are 24 million rows of about 100 bytes.
 */
const usageDays = 100;

/**
 * One statement for all tenants. Rows are locked in the order of their key, so that two
 * processes that write at the same time do not block each other for good.
 */
const writeText = `
  insert into tenant_usage as u (tenant_id, hour, requests, refused, writes, response_bytes, database_ms)
  select t.id, to_timestamp(c.hour / 1000), c.requests, c.refused, c.writes, c.response_bytes, c.database_ms
    from unnest($1::uuid[], $2::float8[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::float8[])
           as c (tenant, hour, requests, refused, writes, response_bytes, database_ms)
    join tenants t on t.guid = c.tenant
   order by 1, 2
      on conflict (tenant_id, hour) do update
     set requests = u.requests + excluded.requests, refused = u.refused + excluded.refused,
         writes = u.writes + excluded.writes, response_bytes = u.response_bytes + excluded.response_bytes,
         database_ms = u.database_ms + excluded.database_ms`;

/** A part at a time, so that no statement takes long. */
const removeOldText = `
  delete from tenant_usage
   where ctid = any (array(select ctid from tenant_usage where hour < now() - interval '${usageDays} days' limit 5000))`;

export function createUsageStore(control: ControlDatabase) {
  return {
    /**
     * Adds counts to the hours of the tenants.
     * @throws {Problem} `outcomeUnknown` when they may be stored; after every other error they
     *   are not
     */
    write: async (counts: readonly TenantUsage[]): Promise<void> => {
      const column = (name: keyof TenantUsage) => counts.map(each => each[name]);
      const values = [
        column('tenant'),
        column('hour'),
        column('requests'),
        column('refused'),
        column('writes'),
        column('responseBytes'),
        column('databaseMs'),
      ];

      await transactControl(control, query => query('usage_write', writeText, values), {
        isRepeatable: false,
      });
    },

    /** Removes some of the rows that are older than 100 days. */
    removeOld: async (): Promise<void> => {
      await queryControl(control, 'usage_remove_old', removeOldText, []);
    },
  };
}
