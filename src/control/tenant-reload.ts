import { setTimeout as delay } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { maxEntries } from '../runtime/lru-bounds.ts';
import type { ControlCache } from './cache.ts';
import { loadTenant, type TenantLoaderOptions } from './load-tenant.ts';
import type { TenantRecord } from './records.ts';

/** A tenant's keys are read again at most this often, in ms. */
const minIntervalMs = 50;

/**
 * Returns the directory's `reloadTenant`. It compares the keys in the database with those of the cached record, and
 * drops the record only if they differ: other caches depend on the identity of the record, and an invented key must
 * not invalidate them.
 *
 * Calls that come together share one comparison, which begins after all of them: the key of a token may have been
 * created since the one before, and an invented key must not hide it.
 */
export function createTenantReload(
  tenants: ControlCache<TenantRecord>,
  options: TenantLoaderOptions,
): (guid: string) => Promise<TenantRecord | undefined> {
  const latest = new LRUCache<string, number>({ ...maxEntries(options.maxEntries ?? 10_000), ttl: minIntervalMs });
  /** Comparisons that have not begun. */
  const awaited = new Map<string, Promise<void>>();

  const compare = async (guid: string): Promise<void> => {
    const nextAt = (latest.get(guid) ?? Number.NEGATIVE_INFINITY) + minIntervalMs;
    await delay(Math.max(0, nextAt - performance.now()));
    latest.set(guid, performance.now());
    awaited.delete(guid);
    const [cached, stored] = await Promise.all([tenants.get(guid), loadTenant(guid, options)]);
    if (keyIds(cached) !== keyIds(stored)) tenants.invalidate(guid);
  };

  return async guid => {
    let comparison = awaited.get(guid);
    if (!comparison) {
      comparison = compare(guid);
      awaited.set(guid, comparison);
    }
    await comparison;
    return tenants.get(guid);
  };
}

function keyIds(tenant: TenantRecord | undefined): string {
  return [...(tenant?.keys.keys() ?? [])].sort().join();
}
