import type { Registry } from 'prom-client';
import type { ChangeFeed } from '../control/change-feed.ts';
import type { ResponseCache } from '../response-cache/response-cache.ts';
import { addCounter, addGauge } from './collectors.ts';

/** Registers the counts and the memory of the response cache, and the state of the change feed that it depends on. */
export function addCacheMetrics(
  registry: Registry,
  responseCache: Pick<ResponseCache, 'bytes' | 'counts'>,
  feed: Pick<ChangeFeed, 'current'>,
): void {
  const counter = (name: keyof ResponseCache['counts'], help: string) =>
    addCounter(registry, {
      name: `response_cache_${name}_total`,
      help,
      read: () => [{ value: responseCache.counts[name] }],
    });
  addGauge(registry, {
    name: 'response_cache_bytes',
    help: 'Memory used by cached responses, in bytes.',
    read: () => [{ value: responseCache.bytes }],
  });
  counter('hits', 'Responses served from memory.');
  counter('misses', 'Cacheable responses that had to be read from a database.');
  counter(
    'revalidations',
    'Cached responses revalidated without a query, because the write monitor proved the database unchanged.',
  );
  addGauge(registry, {
    name: 'change_feed_current',
    help: '1 while the change feed works; 0 while it is down and the service serves nothing from memory.',
    aggregator: 'min',
    read: () => [{ value: feed.current ? 1 : 0 }],
  });
}
