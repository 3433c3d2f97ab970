import { ControlCache } from './cache.ts';
import type { ChangeFeed } from './change-feed.ts';
import { changeTopics } from './change-topics.ts';
import { loadRole, loadSession, loadUser } from './load-caller.ts';
import { loadLegacyToken } from './load-legacy-token.ts';
import { loadTenant, type TenantLoaderOptions } from './load-tenant.ts';
import type { LegacyTokenRecord, RoleRecord, SessionRecord, TenantRecord, UserRecord } from './records.ts';

/** The caches of the directory, one for each topic of the control database, with the keys of `changeTopics`. */
export interface DirectoryCaches {
  readonly tenants: ControlCache<TenantRecord>;
  readonly sessions: ControlCache<SessionRecord>;
  readonly users: ControlCache<UserRecord>;
  readonly roles: ControlCache<RoleRecord>;
  readonly legacyTokens: ControlCache<LegacyTokenRecord>;
}

interface CachesOptions extends TenantLoaderOptions {
  feed: ChangeFeed;
}

const minuteMs = 60_000;

export function createDirectoryCaches(options: CachesOptions): DirectoryCaches {
  const { control, feed, maxEntries = 50_000 } = options;
  const users = new ControlCache<UserRecord>({
    feed,
    topic: changeTopics.users,
    max: maxEntries,
    ttlMs: 5 * minuteMs,
    load: id => loadUser(id, control),
  });
  const roles = new ControlCache<RoleRecord>({
    feed,
    topic: changeTopics.roles,
    max: maxEntries,
    ttlMs: 10 * minuteMs,
    load: id => loadRole(id, control),
  });
  return {
    tenants: createTenantCache(options),
    sessions: createSessionCache(options, users, roles),
    users,
    roles,
    legacyTokens: createLegacyTokenCache(options),
  };
}

function createTenantCache(options: CachesOptions): ControlCache<TenantRecord> {
  const { feed, maxEntries = 10_000 } = options;
  return new ControlCache<TenantRecord>({
    feed,
    topic: changeTopics.tenants,
    max: maxEntries,
    maxAbsent: 1_000,
    ttlMs: 10 * minuteMs,
    load: guid => loadTenant(guid, options),
  });
}

/** A request that looks up a session looks up its user and their role next, so one query loads all three. */
function createSessionCache(
  { control, feed, maxEntries = 50_000 }: CachesOptions,
  users: ControlCache<UserRecord>,
  roles: ControlCache<RoleRecord>,
): ControlCache<SessionRecord> {
  return new ControlCache<SessionRecord>({
    feed,
    topic: changeTopics.sessions,
    max: maxEntries,
    ttlMs: 5 * minuteMs,
    load: async id => {
      const changes = { users: users.changeCount, roles: roles.changeCount };
      const found = await loadSession(id, control);
      if (!found) return undefined;
      users.addIfUnchanged(String(found.user.id), found.user, changes.users);
      roles.addIfUnchanged(String(found.role.id), found.role, changes.roles);
      return found.session;
    },
  });
}

function createLegacyTokenCache({
  control,
  feed,
  maxEntries = 10_000,
}: CachesOptions): ControlCache<LegacyTokenRecord> {
  return new ControlCache<LegacyTokenRecord>({
    feed,
    topic: changeTopics.legacyTokens,
    max: maxEntries,
    maxAbsent: 1_000,
    ttlMs: 5 * minuteMs,
    load: key => loadLegacyToken(key, control),
  });
}
