import { createDirectory } from '../../src/control/directory.ts';
import type { TenantRecord } from '../../src/control/records.ts';
import { createIdleFeed } from '../support/own-feed.ts';
import type { TestTenant, World } from '../support/world.ts';

/** Returns a tenant as the service sees it now, with decrypted secrets. */
export async function tenantRecord(world: World, { guid }: TestTenant): Promise<TenantRecord> {
  const { installation, log } = world;
  const feed = createIdleFeed(world);
  const record = await createDirectory({
    ...installation,
    control: world.control,
    feed,
    log,
  }).tenant(guid);
  if (!record) throw new Error('there is no such tenant');
  return record;
}
