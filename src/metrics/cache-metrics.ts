import type { Registry } from 'prom-client';
import type { ChangeFeed } from '../control/change-feed.ts';
import type { ResponseCache } from '../response-cache/response-cache.ts';
import { addValue } from './collectors.ts';

/** Registers the counts and the memory of the response cache, and the state of the change feed that it depends on. */
export function addCacheMetrics(
  registry: Registry,
  responseCache: Pick<ResponseCache, 'bytes' | 'counts'>,
  feed: Pick<ChangeFeed, 'current'>,
): void {
  const counter = (name: keyof ResponseCache['counts'], help: string) =>
    addValue(registry, 'counter', `response_cache_${name}_total`, help, () => responseCache.counts[name]);
  counter('hits', 'Responses served from memory.');
  counter('misses', 'Cacheable responses that had to be read from a database.');
  counter(
    'revalidations',
    'Cached responses revalidated without a query, because the write monitor proved the database unchanged.',
  );
  const bytes = 'Memory used by cached responses, in bytes.';
  addValue(registry, 'gauge', 'response_cache_bytes', bytes, () => responseCache.bytes);
  addValue(
    registry,
    'gauge',
    'change_feed_current',
    '1 while the change feed works; 0 while it is down and the service serves nothing from memory.',
    () => Number(feed.current),
    'min',
  );
}
