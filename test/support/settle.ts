import { eventually } from './eventually.ts';
import { sql, type TestTenant } from './world.ts';

/**
 * Waits until all changes of these tenants are final: a cursor that is taken before, by
 * `after=now`, returns those that a transaction of another test still holds back.
 */
export async function settle(...tenants: Pick<TestTenant, 'adminUrl'>[]): Promise<void> {
  for (const tenant of tenants) {
    await eventually(async () => {
      const waiting = await sql(
        tenant,
        `select from audit_log where feed_xid >= pg_snapshot_xmin(pg_current_snapshot())
         union all
         select from activities where feed_xid >= pg_snapshot_xmin(pg_current_snapshot())`,
      );
      return waiting.length === 0;
    });
  }
}
