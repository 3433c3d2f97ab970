import { LRUCache } from 'lru-cache';
import { maxEntries } from '../runtime/lru-bounds.ts';
import type { ControlCache } from './cache.ts';
import type { ChangeFeed } from './change-feed.ts';
import { type ControlDatabase, queryControl } from './database.ts';
import type { TenantRecord } from './records.ts';

interface TenantSlugsOptions {
  control: ControlDatabase;
  feed: ChangeFeed;
  /** Knows whether any tenant has changed: changes are announced by guid. */
  tenants: Pick<ControlCache<TenantRecord>, 'changeCount'>;
}

const maxSlugs = 10_000;
const tenantBySlug = 'select guid from tenants where slug = $1';

/**
 * Returns a function that finds the guid of a tenant by its slug; undefined if no tenant has it. The results, also that
 * there is no such tenant, are cached until any tenant changes, which is rare.
 */
export function createTenantSlugs({ control, feed, tenants }: TenantSlugsOptions) {
  const guids = new LRUCache<string, { guid?: string }>(maxEntries(maxSlugs));
  let changeCount = 0;
  return async (slug: string): Promise<string | undefined> => {
    if (tenants.changeCount !== changeCount) guids.clear();
    changeCount = tenants.changeCount;
    const known = feed.current ? guids.get(slug) : undefined;
    if (known) return known.guid;
    const before = tenants.changeCount;
    const [found] = await queryControl<{ guid: string }>(control, 'tenant_by_slug', tenantBySlug, [slug]);
    if (feed.current && tenants.changeCount === before) guids.set(slug, found ?? {});
    return found?.guid;
  };
}
