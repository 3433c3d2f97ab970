import { eventually } from '../../support/eventually.ts';
import { controlSql, type TestTenant, type World } from '../../support/world.ts';
import { storeKey, storeProgram } from '../programs/stored-programs.ts';

/** Isolates a tenant, or ends that, and waits until the process refuses or accepts a key. */
export async function setIsolated(
  world: World,
  tenant: TestTenant,
  isIsolated: boolean,
): Promise<void> {
  const { id } = await storeProgram(world, tenant, { name: 'Probe' });
  const { key } = await storeKey(world, tenant, id);
  await controlSql(world, 'update tenants set isolated = ? where id = ?', [isIsolated, tenant.id]);

  const client = world.anonymous.withToken(key);
  const expected = isIsolated ? 401 : 200;
  await eventually(async () => (await client.get('/api/v1/auth/me')).status === expected);
}
