import { ChangeFeed } from '../../src/control/change-feed.ts';
import { createDirectory } from '../../src/control/directory.ts';
import type { TenantRecord } from '../../src/control/records.ts';
import type { TestTenant, World } from '../support/world.ts';

/** A tenant as the service knows it at this moment, its secrets opened. */
export async function tenantRecord({ installation, log }: World, { guid }: TestTenant): Promise<TenantRecord> {
  // A feed that is not started keeps nothing: every look-up asks the control database.
  const feed = new ChangeFeed(installation.controlUrl, log);
  const record = await createDirectory({ ...installation, feed, log }).tenant(guid);
  if (!record) throw new Error('there is no such tenant');
  return record;
}
