import { z } from 'zod';
import type { ControlDatabase } from '../../control/database.ts';
import { controlReads } from '../../control/tenant-queues.ts';
import { describeFields, moment, timestamp } from '../../lib/http/request/fields.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { preparedStatement } from '../../lib/postgres/statement.ts';
import { pascalCase } from '../../lib/runtime/casing.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { requireScopeAll } from '../../tenancy/require-manager.ts';
import { usageSums } from './usage-sums.ts';

const periods = ['hour', 'day'] as const;

const longCount = () => z.int().min(0);
const view = describeFields(
  {
    StartsAt: timestamp(),
    Requests: longCount(),
    Refused: longCount(),
    Writes: longCount(),
    ResponseBytes: longCount(),
    DatabaseMs: longCount(),
    DatabaseBytes: longCount().nullable(),
    DatabaseMeasuredAt: timestamp().nullable(),
  },
  {
    StartsAt: 'The begin of the hour or day, in UTC.',
    Requests: 'The requests of authenticated users and clients that ended in this time.',
    Refused: 'Of these, the ones with status 429 or 503.',
    Writes: 'Of these, the ones with `POST`, `PUT`, `PATCH` or `DELETE` that succeeded.',
    ResponseBytes: 'The bytes of the response bodies, as they were sent.',
    DatabaseMs:
      "The time in which connections to the tenant's database were in use, in milliseconds.",
    DatabaseBytes:
      'The size of the database when it was last measured in this time, about once a day; ' +
      'null if it was not.',
    DatabaseMeasuredAt: 'The hour in which its size was measured; null if it was not.',
  },
).meta({ title: 'Usage' });

const query = describeFields(
  { from: moment().optional(), to: moment().optional(), by: z.enum(periods).default('day') },
  {
    from: 'From the hour of this time on. Without it, from the begin of this month on, in UTC.',
    to: 'Until before the hour of this time. Without it, until now.',
    by: 'Sums of hours or of days.',
  },
);

/**
 * Reads the rows of one tenant by their primary key: at most 2,400, because the control
 * database has 100 days.
 */
const selectUsage = `
  select ${isoTime(`date_trunc($2, hour, 'UTC')`)} as "startsAt", ${usageSums}
    from tenant_usage
   where tenant_id = $1 and hour >= date_trunc('hour', coalesce($3::timestamptz, date_trunc('month', now(), 'UTC')), 'UTC')
     and ($4::timestamptz is null or hour < date_trunc('hour', $4::timestamptz, 'UTC'))
   group by 1 order by 1`;

/** The usage of the caller's tenant, for its administrators. */
export function usageRoutes({ control }: { control: ControlDatabase }): TenantRoute[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/api/v1/Usage',
      access: 'users.manage',
      tag: 'Usage',
      summary: 'What the tenant used, by day or by hour',
      description:
        'Has an entry for each day (or hour) in UTC with requests, the oldest first. Needs ' +
        'the scope `All`. Requests are added within a minute, and kept for 100 days. When a ' +
        'process of the service is killed, those that it counted in its last minute are ' +
        'missing.',
      query,
      response: z.array(view),
      handler: async ({ query: { from = null, to = null, by } }, context) => {
        requireScopeAll(context.caller);

        const select = preparedStatement(selectUsage, [context.tenant.id, by, from, to]);
        const rows = await controlReads(control, context).read(select);

        const entries = rows.map(row =>
          Object.entries(row).map(([name, value]) => [pascalCase(name), value]),
        );
        return entries.map(each => Object.fromEntries(each));
      },
    }),
  ];
}
