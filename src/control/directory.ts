import { LRUCache } from 'lru-cache';
import { type CacheEntry, ControlCache } from './cache.ts';
import type { ChangeFeed } from './change-feed.ts';
import { LegacyToken } from './client-entities.ts';
import { hashOfLegacyToken } from './legacy-token.ts';
import { loadRole, loadSession, loadUser } from './load-caller.ts';
import { loadTenant, type TenantLoaderOptions } from './load-tenant.ts';
import type {
  CallerRecords,
  LegacyTokenRecord,
  RoleRecord,
  SessionRecord,
  TenantRecord,
  UserRecord,
} from './records.ts';
import { User } from './user-entities.ts';

/** The control database as requests ask it: five look-ups, each kept until its row changes. */
export interface Directory {
  tenant(guid: string): Promise<TenantRecord | undefined>;
  /**
   * The same, asked anew: for a token whose key is not known here, because a rotation has not come round yet. Once a second
   * for a tenant at most, so that made-up keys cost next to nothing.
   */
  reloadTenant(guid: string): Promise<TenantRecord | undefined>;
  session(id: string): Promise<SessionRecord | undefined>;
  /** For who has just ended a session: this process obeys at once, and need not wait for the change feed. */
  invalidateSession(id: string): void;
  user(id: number): Promise<UserRecord | undefined>;
  role(id: number): Promise<RoleRecord | undefined>;
  /**
   * Tells, whenever it is asked, whether a look-up of each would give this very record from memory; it looks once a second.
   * @returns undefined when that is not so now
   */
  freshnessCheck(records: CallerRecords): (() => boolean) | undefined;
  /** How many users belong to a business entity; asked each time. */
  countUsers(tenantId: number, entityId: number): Promise<number>;
  /** By the token itself; undefined also when it is not well-formed. */
  legacyToken(token: string): Promise<LegacyTokenRecord | undefined>;
}

const minutes = 60_000;
const lookEveryMs = 1_000;

interface DirectoryOptions extends TenantLoaderOptions {
  feed: ChangeFeed;
}

export function createDirectory(options: DirectoryOptions): Directory {
  const { control, feed } = options;
  const em = () => control.em.fork();
  const tenants = new ControlCache<TenantRecord>({
    feed,
    table: 'tenants',
    max: 10_000,
    maxAbsent: 1_000,
    ttlMs: 10 * minutes,
    load: guid => loadTenant(guid, options),
  });
  const askedAnew = new LRUCache<string, Promise<void>>({ max: 10_000, ttl: 1_000 });
  const users = new ControlCache<UserRecord>({
    feed,
    table: 'users',
    max: 50_000,
    ttlMs: 5 * minutes,
    load: id => loadUser(id, control),
  });
  const roles = new ControlCache<RoleRecord>({
    feed,
    table: 'roles',
    max: 50_000,
    ttlMs: 10 * minutes,
    load: id => loadRole(id, control),
  });
  const sessions = new ControlCache<SessionRecord>({
    feed,
    table: 'sessions',
    max: 50_000,
    ttlMs: 5 * minutes,
    // Who asks for a session asks for its user and their role next: they come along.
    load: async id => {
      const since = [users.changeCount, roles.changeCount] as const;
      const found = await loadSession(id, control);
      if (!found) return undefined;
      users.addIfUnchanged(String(found.user.id), found.user, since[0]);
      roles.addIfUnchanged(String(found.role.id), found.role, since[1]);
      return found.session;
    },
  });
  const legacyTokens = new ControlCache<LegacyTokenRecord>({
    feed,
    table: 'legacy_tokens',
    max: 10_000,
    maxAbsent: 1_000,
    ttlMs: 5 * minutes,
    load: async key => {
      const hash = Buffer.from(key.replace(/^\\x/, ''), 'hex');
      const token = await em().findOne(LegacyToken, { hash }, { populate: ['tenant'] });
      if (!token) return undefined;
      const { tenant, user, entityType, expiresAt, revokedAt } = token;
      return {
        tenantGuid: tenant.guid,
        userId: user.id,
        entityType: entityType ?? null,
        expiresAt: expiresAt.getTime(),
        revoked: revokedAt !== null,
      };
    },
  });
  /** A made-up key finds nothing new, and the record stays: what is kept in memory for the tenant hangs on it. */
  const lookForKeys = async (guid: string): Promise<void> => {
    const [known, found] = await Promise.all([tenants.get(guid), loadTenant(guid, options)]);
    const kids = (tenant?: TenantRecord) => [...(tenant?.keys.keys() ?? [])].sort().join();
    if (kids(known) !== kids(found)) tenants.invalidate(guid);
  };
  /** What is kept of each, if it is this very record. To be looked up is to be used: what is used is not forgotten for others. */
  const lookUp = ({ tenant, session, user, role }: CallerRecords): CacheEntry<object>[] | undefined => {
    const [ofTenant, ofSession] = [tenants.getCached(tenant.guid), sessions.getCached(session.id)];
    const [ofUser, ofRole] = [users.getCached(String(user.id)), roles.getCached(String(role.id))];
    if (ofTenant?.value !== tenant || ofSession?.value !== session) return undefined;
    if (ofUser?.value !== user || ofRole?.value !== role) return undefined;
    return [ofTenant, ofSession, ofUser, ofRole];
  };
  return {
    legacyToken: async token => {
      const hash = hashOfLegacyToken(token);
      return hash === undefined ? undefined : legacyTokens.get(`\\x${hash}`); // as PostgreSQL writes bytes, and so the change feed
    },
    tenant: guid => tenants.get(guid),
    reloadTenant: async guid => {
      let asked = askedAnew.get(guid);
      if (!asked) {
        asked = lookForKeys(guid);
        askedAnew.set(guid, asked);
      }
      await asked;
      return tenants.get(guid);
    },
    session: id => sessions.get(id),
    invalidateSession: id => sessions.invalidate(id),
    user: id => users.get(String(id)),
    role: id => roles.get(String(id)),
    freshnessCheck: records => {
      let held = lookUp(records);
      let lookedAt = performance.now();
      if (!held) return undefined;
      return () => {
        if (!feed.current) return false;
        const now = performance.now();
        if (now - lookedAt > lookEveryMs) {
          held = lookUp(records);
          lookedAt = now;
        }
        return held?.every(({ dropped }) => !dropped) ?? false;
      };
    },
    countUsers: (tenant, entityId) => em().count(User, { tenant, entityId }),
  };
}
