import type pg from 'pg';
import { changeChannel, changeTopics } from '../../control/change-topics.ts';
import { inTransaction } from '../../postgres/in-transaction.ts';
import type { LockedTenant } from './database-store.ts';
import { liftFence } from './fence.ts';

/**
 * Lets requests of a tenant go on, with the data that its database has now: lets every process drop the cached responses
 * of the tenant, and lifts its fence. A tenant that is being provisioned is served from now on.
 */
export async function serveTenant(control: pg.Client, { id, guid }: LockedTenant): Promise<void> {
  await inTransaction(control, async () => {
    await control.query('select pg_notify($1, $2)', [changeChannel, `${changeTopics.responses}:${guid}`]);
    await control.query(liftFence, [guid]);
    await control.query(
      `update tenants set status = 'active', updated_at = now()
        where id = $1 and status = 'provisioning'
          and exists (select from tenant_databases d where tenant_id = $1 and d.state = 'current')`,
      [id],
    );
  });
}
