import { LRUCache } from 'lru-cache';
import { maxEntries } from '../lru-bounds.ts';
import type { ControlCache } from './cache.ts';
import { loadTenant, type TenantLoaderOptions } from './load-tenant.ts';
import type { TenantRecord } from './records.ts';

const minIntervalMs = 1_000;

/**
 * Returns the directory's `reloadTenant`. It compares the keys in the database with those of the cached record, and
 * drops the record only if they differ: other caches depend on the identity of the record, and an invented key must
 * not invalidate them.
 */
export function createTenantReload(
  tenants: ControlCache<TenantRecord>,
  options: TenantLoaderOptions,
): (guid: string) => Promise<TenantRecord | undefined> {
  const recentChecks = new LRUCache<string, Promise<void>>({
    ...maxEntries(options.maxEntries ?? 10_000),
    ttl: minIntervalMs,
  });

  const dropIfKeysDiffer = async (guid: string): Promise<void> => {
    const [cached, stored] = await Promise.all([tenants.get(guid), loadTenant(guid, options)]);
    if (keyIds(cached) !== keyIds(stored)) tenants.invalidate(guid);
  };

  return async guid => {
    let check = recentChecks.get(guid);
    if (!check) {
      check = dropIfKeysDiffer(guid);
      recentChecks.set(guid, check);
    }
    await check;
    return tenants.get(guid);
  };
}

function keyIds(tenant: TenantRecord | undefined): string {
  return [...(tenant?.keys.keys() ?? [])].sort().join();
}
