import type pg from 'pg';
import { type Finding, toFinding } from './finding.ts';

/** A tenant whose webhooks are behind. */
export interface LateWebhooks {
  readonly tenant: string;
  readonly server: string;
  /** True if the service does not serve the webhooks; false if their receivers fail. */
  readonly isWaiting: boolean;
}

/** The time that due webhooks may wait: longer than a pause of all processes. */
const maxWait = `interval '10 minutes'`;
/**
 * SQL: the time since which a tenant waits. Not only `due_at`: a process that fails again and
 * again to serve a tenant makes it due later each time.
 */
const waitsSince = 'coalesce(waiting_since, due_at)';
/** The time that a receiver may fail: longer than a night in which it is being repaired. */
const maxFailing = `interval '1 day'`;

export async function readLateWebhooks(client: pg.Client): Promise<LateWebhooks[]> {
  const { rows } = await client.query<LateWebhooks>(
    `select slug as tenant, s.name as server, ${waitsSince} < now() - ${maxWait} as "isWaiting"
       from webhook_tenants join tenants t on t.id = tenant_id join servers s on s.id = t.server_id
      where is_active and t.status = 'active' and not isolated
        and (${waitsSince} < now() - ${maxWait} or failing > 0 and failing_since < now() - ${maxFailing})`,
  );
  return rows;
}

/** Reports webhooks that nobody serves, and those whose receivers have failed for a day. */
export function checkWebhooks(late: readonly LateWebhooks[]): Finding[] {
  return late.map(({ tenant, server, isWaiting }) =>
    toFinding(server, {
      check: 'webhooks_behind',
      tenant,
      problem: isWaiting
        ? `the webhooks of ${tenant} are due, and no process of the service can serve them`
        : `a webhook of ${tenant} fails`,
      remedy: isWaiting
        ? 'Find out whether a process of the service runs, and read its log: bin/backoffice processes'
        : `See which one, and tell the tenant: bin/backoffice webhooks ${tenant}`,
    }),
  );
}
