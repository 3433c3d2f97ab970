import type { Client } from './client.ts';
import { eventually } from './eventually.ts';
import { sql, type TestTenant } from './world.ts';

/**
 * Waits until all changes of these tenants are final: a cursor that is taken before, by
 * `after=now`, returns those that a transaction of another test still holds back. Those of an
 * earlier era are final, and may have ids far ahead of the counter of this cluster.
 */
export async function settle(...tenants: Pick<TestTenant, 'adminUrl'>[]): Promise<void> {
  for (const tenant of tenants) {
    await eventually(async () => {
      const waiting = await sql(
        tenant,
        `select from (select feed_era, feed_xid from audit_log
                      union all
                      select feed_era, feed_xid from activities) changes
          where feed_era = (select feed_era from tenant_identity)
            and feed_xid >= pg_snapshot_xmin(pg_current_snapshot())`,
      );
      return waiting.length === 0;
    });
  }
}

/** Begins an era, as a restore does: what was read before says nothing about the data. */
export async function beginEra(tenant: Pick<TestTenant, 'adminUrl'>): Promise<void> {
  await sql(
    tenant,
    'update tenant_identity set feed_since = feed_since + 1, feed_era = feed_era + 1',
  );
}

/** Returns a cursor after which the feed of a tenant has only changes that are to come. */
export async function cursorOfNow(
  client: Client,
  tenant: Pick<TestTenant, 'adminUrl'>,
): Promise<string> {
  await settle(tenant);
  const { headers } = await client.get('/api/v1/Changes?after=now');
  return headers.get('next-cursor') ?? '';
}
