import { setTimeout as sleep } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import { maxEntries } from '../lib/runtime/lru-bounds.ts';
import type { CacheEntry, ControlCache } from './cache.ts';
import type { ChangeFeed } from './change-feed.ts';
import { queryControl } from './database.ts';
import {
  createDirectoryCaches,
  type DirectoryCaches,
  hashName,
  maxTenants,
} from './directory-caches.ts';
import { loadActiveTenants, loadTenant, type TenantLoaderOptions } from './load-tenant.ts';
import type { CallerRecords, TenantRecord } from './records.ts';

/**
 * The look-ups that requests make in the control database. Each result is cached until the
 * change feed announces a change of its row. A look-up returns undefined when there is no such
 * row.
 */
export type Directory = ReturnType<typeof createDirectory>;

interface DirectoryOptions extends TenantLoaderOptions {
  feed: ChangeFeed;
}

/** The users of a business entity, by their kind. */
export interface UserCounts {
  readonly people: number;
  readonly programs: number;
}

const usersOfEntity = `
  select count(*) filter (where kind = 'person')::int as people,
         count(*) filter (where kind = 'program')::int as programs
    from users where tenant_id = $1 and entity_id = $2`;

/** The tenant of a slug, or of an alias while it lasts. */
const guidBySlug = 'select tenant_named($1) as guid';

export function createDirectory(options: DirectoryOptions) {
  const { control, feed } = options;
  const caches = createDirectoryCaches(options);
  const { tenants, sessions, programKeys, users, roles, legacyTokens } = caches;

  return {
    tenant: (guid: string) => tenants.get(guid),
    /**
     * Loads the active tenants into memory, as far as it holds them: 1,000 take some 1 MB. Later
     * ones are loaded when they are first used, and all of them if the change feed is not
     * current or a tenant is changed meanwhile.
     */
    loadTenants: async (): Promise<void> => {
      const { changeCount } = tenants;
      for (const tenant of await loadActiveTenants(maxTenants, options)) {
        tenants.addIfUnchanged(tenant.guid, tenant, changeCount);
      }
    },
    /** Queries the slug each time: only requests without a token have one, such as a login. */
    tenantBySlug: async (slug: string) => {
      const [found] = await queryControl<{ guid: string | null }>(
        control,
        'tenant_by_slug',
        guidBySlug,
        [slug],
      );
      return found?.guid ? tenants.get(found.guid) : undefined;
    },

    /**
     * Looks the tenant up for a token whose key the cached record lacks: this process may not
     * have received a key rotation yet. Reads the keys from the database, at most 20 times a
     * second for each tenant, so that invented keys cost next to nothing.
     */
    reloadTenant: createTenantReload(tenants, options),

    session: (id: string) => sessions.get(id),
    /**
     * Removes a session from the cache, so that the process that revoked it need not wait for
     * the change feed.
     */
    invalidateSession: (id: string) => sessions.invalidate(id),
    /** @param name of a `ProgramKeyRecord` */
    programKey: (name: string) => programKeys.get(name),
    user: (id: number) => users.get(String(id)),
    role: (id: number) => roles.get(String(id)),

    /**
     * Returns a function that is true while the directory would return these very objects from
     * memory. It checks the age of the cache entries once a second, and everything else at each
     * call.
     * @returns undefined when the directory would not return these objects now
     */
    freshnessCheck: createFreshnessCheck(caches, feed),

    /** Counts the people and the programs of a business entity. Never cached. */
    countUsers: async (tenantId: number, entityId: number): Promise<UserCounts> => {
      const [counts] = await queryControl<UserCounts>(control, 'users_of_entity', usersOfEntity, [
        tenantId,
        entityId,
      ]);
      return counts ?? { people: 0, programs: 0 };
    },

    /** @param hash of the token, in hexadecimal */
    legacyToken: (hash: string) => legacyTokens.get(hashName(hash)),
    /** Removes a legacy token from the cache, as `invalidateSession` does a session. */
    invalidateLegacyToken: (hash: string) => legacyTokens.invalidate(hashName(hash)),
  };
}

/** The interval of the look-ups, which find expired entries: entries live for minutes. */
const lookUpEveryMs = 1_000;

/**
 * Returns the directory's `freshnessCheck`. Between two look-ups it reads a flag of each cache
 * entry, which the cache sets when it removes the entry.
 */
function createFreshnessCheck(
  caches: DirectoryCaches,
  feed: ChangeFeed,
): (records: CallerRecords) => (() => boolean) | undefined {
  return records => {
    let entries = findEntries(caches, records);
    let lookedUpAt = performance.now();
    if (!entries) return undefined;

    return () => {
      if (!feed.current) return false;
      const now = performance.now();
      if (now - lookedUpAt > lookUpEveryMs) {
        entries = findEntries(caches, records);
        lookedUpAt = now;
      }
      return entries?.every(({ removed }) => !removed) ?? false;
    };
  };
}

/**
 * Returns the cache entries of the records, or undefined if a cache holds another record or
 * none. The look-up counts as a use of each entry, so the caches do not evict the entries of a
 * token that is in use.
 */
function findEntries(
  { tenants, sessions, programKeys, users, roles }: DirectoryCaches,
  { tenant, session, user, role }: CallerRecords,
): CacheEntry<object>[] | undefined {
  const tenantEntry = tenants.getCached(tenant.guid);
  const sessionEntry =
    'name' in session ? programKeys.getCached(session.name) : sessions.getCached(session.id);
  const userEntry = users.getCached(String(user.id));
  const roleEntry = roles.getCached(String(role.id));
  if (tenantEntry?.value !== tenant || sessionEntry?.value !== session) return undefined;
  if (userEntry?.value !== user || roleEntry?.value !== role) return undefined;
  return [tenantEntry, sessionEntry, userEntry, roleEntry];
}

/** The minimum time between two reads of a tenant's keys, in ms. */
const minIntervalMs = 50;

/**
 * Returns the directory's `reloadTenant`. It compares the keys in the database with those of
 * the cached record, and drops the record only if they differ: other caches depend on the
 * identity of the record, and an invented key must not invalidate them.
 *
 * Concurrent calls share one comparison, which begins after all of them: the key of a token may
 * be newer than the comparison before, and an invented key must not hide it.
 */
function createTenantReload(
  tenants: ControlCache<TenantRecord>,
  options: TenantLoaderOptions,
): (guid: string) => Promise<TenantRecord | undefined> {
  const latest = new LRUCache<string, number>({ ...maxEntries(10_000), ttl: minIntervalMs });
  /** Comparisons that have not begun. */
  const awaited = new Map<string, Promise<void>>();

  const compare = async (guid: string): Promise<void> => {
    const nextAt = (latest.get(guid) ?? Number.NEGATIVE_INFINITY) + minIntervalMs;
    await sleep(Math.max(0, nextAt - performance.now()));
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
