import { readFile } from 'node:fs/promises';
import type { Passwords } from '../../accounts/auth/passwords.ts';
import { type Tenant, User } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { inTransaction } from '../../lib/postgres/in-transaction.ts';
import { connectTenant } from '../registry/tenants.ts';
import type { Manifest } from './manifest.ts';
import { firstDataOf, type Provisioned, provision } from './provision.ts';

/**
 * Provisions the demo tenant with the records of `tenants/demo.sql`, so that every list shows
 * something at the first call. An existing tenant is not changed.
 */
export async function provisionDemoTenant(
  installation: Installation,
  passwords: Passwords,
  manifest: Manifest,
): Promise<Provisioned> {
  const first = firstDataOf(installation, passwords, manifest);

  return provision(installation, passwords, manifest, {
    first: {
      ...first,
      async populate(tenant) {
        await first.populate(tenant);
        await addDemoRecords(installation, tenant, manifest);
      },
    },
  });
}

/**
 * Runs `tenants/demo.sql` in one transaction, unless an earlier run that was killed has done
 * so.
 */
async function addDemoRecords(
  installation: Installation,
  tenant: Tenant,
  { admin }: Manifest,
): Promise<void> {
  const records = await readFile(new URL('../../../tenants/demo.sql', import.meta.url), 'utf8');
  const { em } = await installation.control();
  const { id } = await em.fork().findOneOrFail(User, { tenant: tenant.id, email: admin.email });
  await connectTenant(installation, tenant, async client => {
    const { rowCount } = await client.query('select from order_statuses limit 1');
    if (rowCount) return;
    await inTransaction(client, async () => {
      // Activities are refused without an actor. Any actor satisfies their trigger.
      const actor = `select set_config('demo.user_id', $1, true), set_config('app.actor', '{}', true)`;
      await client.query(actor, [String(id)]);
      await client.query(records);
    });
  });
}
