import { ChangeFeed } from '../../src/control/change-feed.ts';
import { createDirectory } from '../../src/control/directory.ts';
import type { TenantRecord } from '../../src/control/records.ts';
import type { TestTenant, World } from '../support/world.ts';

/** Returns a tenant as the service sees it now, with decrypted secrets. */
export async function tenantRecord({ installation, log }: World, { guid }: TestTenant): Promise<TenantRecord> {
  // While the feed is not started, nothing is cached: every look-up queries the control database.
  const feed = new ChangeFeed({ url: installation.controlUrl, announce: async () => {}, log });
  const record = await createDirectory({ ...installation, feed, log }).tenant(guid);
  if (!record) throw new Error('there is no such tenant');
  return record;
}
