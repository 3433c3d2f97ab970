import { ControlCache } from './cache.ts';
import type { ChangeFeed } from './change-feed.ts';
import { changeTopics } from './change-topics.ts';
import { loadRole, loadSession, loadUser } from './load-caller.ts';
import { loadLegacyToken } from './load-legacy-token.ts';
import { loadTenant, type TenantLoaderOptions } from './load-tenant.ts';
import type { LegacyTokenRecord, RoleRecord, SessionRecord, TenantRecord, UserRecord } from './records.ts';

/** The caches of the directory, one for each topic of the control database, with the keys of `changeTopics`. */
export type DirectoryCaches = ReturnType<typeof createDirectoryCaches>;

interface CachesOptions extends TenantLoaderOptions {
  feed: ChangeFeed;
}

const minuteMs = 60_000;

export function createDirectoryCaches(options: CachesOptions) {
  const { control, feed, maxEntries } = options;
  const ofPeople = { feed, max: maxEntries ?? 50_000, ttlMs: 5 * minuteMs };
  const ofTenants = { feed, max: maxEntries ?? 10_000, maxAbsent: 1_000 };
  const users = new ControlCache<UserRecord>({
    ...ofPeople,
    topic: changeTopics.users,
    load: id => loadUser(id, control),
  });
  const roles = new ControlCache<RoleRecord>({
    ...ofPeople,
    ttlMs: 10 * minuteMs,
    topic: changeTopics.roles,
    load: id => loadRole(id, control),
  });
  /** A request that looks up a session looks up its user and their role next, so one query loads all three. */
  const sessions = new ControlCache<SessionRecord>({
    ...ofPeople,
    topic: changeTopics.sessions,
    load: async id => {
      const changes = { users: users.changeCount, roles: roles.changeCount };
      const found = await loadSession(id, control);
      if (!found) return undefined;
      users.addIfUnchanged(String(found.user.id), found.user, changes.users);
      roles.addIfUnchanged(String(found.role.id), found.role, changes.roles);
      return found.session;
    },
  });
  const tenants = new ControlCache<TenantRecord>({
    ...ofTenants,
    ttlMs: 10 * minuteMs,
    topic: changeTopics.tenants,
    load: guid => loadTenant(guid, options),
  });
  const legacyTokens = new ControlCache<LegacyTokenRecord>({
    ...ofTenants,
    ttlMs: 5 * minuteMs,
    topic: changeTopics.legacyTokens,
    load: key => loadLegacyToken(key, control),
  });
  return { tenants, sessions, users, roles, legacyTokens };
}
