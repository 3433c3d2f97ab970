import { type Clock, processClock } from '../runtime/clock.ts';
import type { ChangeFeed } from './change-feed.ts';
import { queryControl } from './database.ts';
import { createDirectoryCaches } from './directory-caches.ts';
import { createFreshnessCheck } from './freshness-check.ts';
import { legacyTokenKey } from './load-legacy-token.ts';
import type { TenantLoaderOptions } from './load-tenant.ts';
import type {
  CallerRecords,
  LegacyTokenRecord,
  RoleRecord,
  SessionRecord,
  TenantRecord,
  UserRecord,
} from './records.ts';
import { createTenantReload } from './tenant-reload.ts';
import { User } from './user-entities.ts';

/**
 * The look-ups that requests make in the control database. Each result is cached until the change feed announces a
 * change of its row. A look-up returns undefined when there is no such row.
 */
export interface Directory {
  tenant(guid: string): Promise<TenantRecord | undefined>;
  /** Looks the slug up each time: only requests without a token have one, such as a login. */
  tenantBySlug(slug: string): Promise<TenantRecord | undefined>;
  /**
   * Looks the tenant up for a token whose key the cached record lacks, because this process has not received a key
   * rotation yet: reads the keys from the database, at most five times a second for each tenant, so that invented keys
   * cost next to nothing.
   */
  reloadTenant(guid: string): Promise<TenantRecord | undefined>;
  session(id: string): Promise<SessionRecord | undefined>;
  /** Removes a session from the cache, so that the process that revoked it need not wait for the change feed. */
  invalidateSession(id: string): void;
  user(id: number): Promise<UserRecord | undefined>;
  role(id: number): Promise<RoleRecord | undefined>;
  /**
   * Returns a function that is true while the directory would return these very objects from memory. It checks the age
   * of the cache entries once a second, and everything else at each call.
   * @returns undefined when the directory would not return these objects now
   */
  freshnessCheck(records: CallerRecords): (() => boolean) | undefined;
  /** Counts the users of a business entity. Never cached. */
  countUsers(tenantId: number, entityId: number): Promise<number>;
  /** @param hash of the token, in hexadecimal */
  legacyToken(hash: string): Promise<LegacyTokenRecord | undefined>;
}

interface DirectoryOptions extends TenantLoaderOptions {
  feed: ChangeFeed;
  /** Replaced in simulations. */
  clock?: Pick<Clock, 'now'>;
}

const guidBySlug = 'select guid from tenants where slug = $1';

export function createDirectory(options: DirectoryOptions): Directory {
  const { control, feed, clock = processClock } = options;
  const caches = createDirectoryCaches(options);
  const { tenants, sessions, users, roles, legacyTokens } = caches;
  return {
    tenant: guid => tenants.get(guid),
    tenantBySlug: async slug => {
      const [found] = await queryControl<{ guid: string }>(control, 'tenant_by_slug', guidBySlug, [slug]);
      return found && tenants.get(found.guid);
    },
    reloadTenant: createTenantReload(tenants, options),
    session: id => sessions.get(id),
    invalidateSession: id => sessions.invalidate(id),
    user: id => users.get(String(id)),
    role: id => roles.get(String(id)),
    freshnessCheck: createFreshnessCheck(caches, feed, clock),
    countUsers: (tenant, entityId) => control.em.fork().count(User, { tenant, entityId }),
    legacyToken: hash => legacyTokens.get(legacyTokenKey(hash)),
  };
}
