import { ControlCache } from './cache.ts';
import type { ChangeFeed } from './change-feed.ts';
import { changeTopics } from './change-topics.ts';
import { type ControlDatabase, queryControl } from './database.ts';
import { loadTenant, type TenantLoaderOptions } from './load-tenant.ts';
import type {
  LegacyTokenRecord,
  RoleRecord,
  SessionRecord,
  TenantRecord,
  UserRecord,
} from './records.ts';

/**
 * The caches of the directory, one for each topic of the control database, with the keys of
 * `changeTopics`.
 */
export type DirectoryCaches = ReturnType<typeof createDirectoryCaches>;

interface CachesOptions extends TenantLoaderOptions {
  feed: ChangeFeed;
}

const minuteMs = 60_000;
/** The maximum tenants in memory. */
export const maxTenants = 10_000;

export function createDirectoryCaches(options: CachesOptions) {
  const { control, feed } = options;
  const ofPeople = { feed, max: 50_000, ttlMs: 5 * minuteMs };
  const ofTenants = { feed, max: maxTenants, maxAbsent: 1_000 };

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

  /**
   * A request that looks up a session looks up its user and their role next, so one query loads
   * all three.
   */
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

const user = `
  json_build_object('id', u.id, 'guid', u.guid, 'tenantId', u.tenant_id, 'email', email, 'firstName', first_name,
                    'lastName', last_name, 'roleId', role_id, 'scope', scope, 'entityId', entity_id,
                    'entitySince', entity_since,
                    'disabled', disabled_at is not null) as "user"`;
const role = `json_build_object('id', r.id, 'name', r.name, 'permissions', permissions) as role`;

interface CallerRow {
  readonly user: UserRecord;
  readonly role: Omit<RoleRecord, 'permissions'> & { readonly permissions: readonly string[] };
  readonly revoked: boolean;
}

const userById = `select ${user} from users u where u.id = $1`;
const roleById = `select ${role} from roles r where r.id = $1`;
const sessionById = `
  select s.revoked_at is not null as revoked, ${user}, ${role}
    from sessions s join users u on u.id = s.user_id join roles r on r.id = u.role_id
   where s.id = $1`;

async function loadUser(id: string, control: ControlDatabase): Promise<UserRecord | undefined> {
  const [row] = await queryControl<Pick<CallerRow, 'user'>>(control, 'user_by_id', userById, [id]);
  return row?.user;
}

async function loadRole(id: string, control: ControlDatabase): Promise<RoleRecord | undefined> {
  const [row] = await queryControl<Pick<CallerRow, 'role'>>(control, 'role_by_id', roleById, [id]);
  return row && toRole(row);
}

/** Loads a session together with its user and the user's role, which the request needs next. */
async function loadSession(
  id: string,
  control: ControlDatabase,
): Promise<{ session: SessionRecord; user: UserRecord; role: RoleRecord } | undefined> {
  const [row] = await queryControl<CallerRow>(control, 'session_by_id', sessionById, [id]);
  if (!row) return undefined;
  const { user, revoked } = row;
  return {
    session: { id, tenantId: user.tenantId, userId: user.id, revoked },
    user,
    role: toRole(row),
  };
}

function toRole({ role }: Pick<CallerRow, 'role'>): RoleRecord {
  return { ...role, permissions: new Set(role.permissions) };
}

/**
 * The cache key of a legacy token: its hash in the notation of PostgreSQL for `bytea`, which
 * the change feed uses too.
 */
export function legacyTokenKey(hash: string): string {
  return `\\x${hash}`;
}

const tokenByKey = `
  select t.guid as "tenantGuid", user_id::float8 as "userId", entity_type as "entityType",
         (extract(epoch from expires_at) * 1000)::float8 as "expiresAt", revoked_at is not null as revoked
    from legacy_tokens join tenants t on t.id = tenant_id where hash = $1::bytea`;

async function loadLegacyToken(
  key: string,
  control: ControlDatabase,
): Promise<LegacyTokenRecord | undefined> {
  const [token] = await queryControl<LegacyTokenRecord>(
    control,
    'legacy_token_by_key',
    tokenByKey,
    [key],
  );
  return token;
}
