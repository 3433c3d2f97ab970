import type { Clock } from '../runtime/clock.ts';
import type { CacheEntry } from './cache.ts';
import type { ChangeFeed } from './change-feed.ts';
import type { DirectoryCaches } from './directory-caches.ts';
import type { CallerRecords } from './records.ts';

/** A look-up once a second is enough: it finds expired entries, which live for minutes. */
const lookUpEveryMs = 1_000;

/**
 * Returns the directory's `freshnessCheck`. Between two look-ups it reads a flag of each cache entry, which the cache
 * sets when it removes the entry.
 */
export function createFreshnessCheck(
  caches: DirectoryCaches,
  feed: ChangeFeed,
  clock: Pick<Clock, 'now'>,
): (records: CallerRecords) => (() => boolean) | undefined {
  return records => {
    let entries = findEntries(caches, records);
    let lookedUpAt = clock.now();
    if (!entries) return undefined;
    return () => {
      if (!feed.current) return false;
      const now = clock.now();
      if (now - lookedUpAt > lookUpEveryMs) {
        entries = findEntries(caches, records);
        lookedUpAt = now;
      }
      return entries?.every(({ removed }) => !removed) ?? false;
    };
  };
}

/**
 * Returns the cache entries of the records, or undefined if a cache holds another record or none. The look-up counts as
 * a use of each entry, so the caches do not evict the entries of a token that is in use.
 */
function findEntries(
  { tenants, sessions, users, roles }: DirectoryCaches,
  { tenant, session, user, role }: CallerRecords,
): CacheEntry<object>[] | undefined {
  const tenantEntry = tenants.getCached(tenant.guid);
  const sessionEntry = sessions.getCached(session.id);
  const userEntry = users.getCached(String(user.id));
  const roleEntry = roles.getCached(String(role.id));
  if (tenantEntry?.value !== tenant || sessionEntry?.value !== session) return undefined;
  if (userEntry?.value !== user || roleEntry?.value !== role) return undefined;
  return [tenantEntry, sessionEntry, userEntry, roleEntry];
}
