import type { ControlStatements } from '../../control/installation.ts';
import { usageSums } from '../../sales/usage/usage-sums.ts';
import { readTenant } from './read-tenants.ts';

/** The lengths of the periods that usage is summed over. */
export const periods = ['hour', 'day', 'month'] as const;

/** The usage of a tenant in a period. */
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
  /**
   * The size of the database when doctor last measured it in the period; null if it did not.
   */
  databaseBytes: number | null;
  /** The hour in which doctor has measured it (RFC 3339, UTC). */
  databaseMeasuredAt: string | null;
}

interface UsageFilter {
  /** The slug of one tenant; undefined: all tenants. */
  slug: string | undefined;
  /**
   * Times in ISO 8601: usage from the hour of `from` until before the hour of `to`, so periods
   * in a row share no hour.
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
  const { rows } = await statements.query<TenantUsageSummary>(
    `select slug as tenant, guid, to_char(hour at time zone 'UTC', '${formats[by]}') as period,
            ${usageSums}
       from tenant_usage join tenants on tenants.id = tenant_id
      where hour >= date_trunc('hour', $1::timestamptz, 'UTC') and hour < date_trunc('hour', $2::timestamptz, 'UTC')
            ${slug === undefined ? '' : 'and slug = $3'}
      group by 1, 2, 3 order by period, sum(requests) desc, slug`,
    [from, to, ...(slug === undefined ? [] : [slug])],
  );

  return rows;
}
