import type { ControlStatements } from '../../installation.ts';
import { isoTime } from '../../postgres/iso-time.ts';
import { usageSums } from '../../usage/usage-sums.ts';
import { readTenant } from './read-tenants.ts';

/** The lengths of the periods that usage is summed over. */
export const periods = ['hour', 'day', 'month'] as const;

/** What a tenant used in a period. */
export interface TenantUsageSummary {
  tenant: string;
  guid: string;
  /** The period in UTC: `2026-11`, `2026-11-23` or `2026-11-23T14:00Z`. */
  period: string;
  requests: number;
  refused: number;
  writes: number;
  responseBytes: number;
  databaseMs: number;
  /** The last known size of the database in the period; null when none was sampled. */
  databaseBytes: number | null;
}

/** A process whose last requests are not recorded. */
export interface UsageGap {
  process: string;
  host: string;
  pid: number;
  /** Its requests that ended before are recorded. */
  countedUntil: string;
  /** True if the process was seen after that, and has yet to write them. */
  isRunning: boolean;
}

interface UsageFilter {
  /** Of one tenant; undefined: of all. */
  slug: string | undefined;
  /**
   * Times in ISO 8601: usage from the hour of `from` until before the hour of `to`, so periods in a row share no hour.
   */
  from: string;
  to: string;
}

const formats = { hour: 'YYYY-MM-DD"T"HH24:MI"Z"', day: 'YYYY-MM-DD', month: 'YYYY-MM' } as const;

/**
 * Returns the usage of tenants by period, the tenants with the most requests first in each.
 * @throws {OperatorError} when there is no tenant with this slug
 */
export async function readUsage(
  { statements }: ControlStatements,
  { slug, from, to }: UsageFilter,
  by: (typeof periods)[number],
): Promise<TenantUsageSummary[]> {
  if (slug !== undefined) await readTenant({ statements }, slug);
  return statements.execute(
    `select slug as tenant, guid, to_char(hour at time zone 'UTC', '${formats[by]}') as period,
            ${usageSums}
       from tenant_usage join tenants on tenants.id = tenant_id
      where hour >= date_trunc('hour', ?::timestamptz, 'UTC') and hour < date_trunc('hour', ?::timestamptz, 'UTC')
            ${slug === undefined ? '' : 'and slug = ?'}
      group by 1, 2, 3 order by period, sum(requests) desc, slug`,
    [from, to, ...(slug === undefined ? [] : [slug])],
  );
}

/** Longer than three intervals of the batches of a process. */
const silence = `interval '30 s'`;

/** Returns the processes that were killed in this time or shortly before, or cannot write what they count. */
export async function readGaps({ statements }: ControlStatements, { from, to }: UsageFilter): Promise<UsageGap[]> {
  return statements.execute(
    `select process, w.host, w.pid, ${isoTime('counted_until')} as "countedUntil", p.id is not null as "isRunning"
       from usage_writers w left join processes p on p.id = w.process and p.seen_at > written_at + ${silence}
      where ended_at is null and written_at < now() - ${silence}
        and counted_until >= ?::timestamptz - ${silence} and counted_until < ?::timestamptz
      order by counted_until`,
    [from, to],
  );
}
