import { ControlCache } from './cache.ts';
import type { ChangeFeed } from './change-feed.ts';
import { changeTopics } from './change-topics.ts';
import { type ControlDatabase, queryControl } from './database.ts';
import { loadTenant, type TenantLoaderOptions } from './load-tenant.ts';
import type {
  LegacyTokenRecord,
  ProgramKeyRecord,
  RoleRecord,
  SessionRecord,
  TenantRecord,
  UserRecord,
} from './records.ts';
import { isProvedByProvider } from './second-factor.ts';

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
   * A request that looks up a session, or the key of a program, looks up its user and the role
   * next, so one query loads all three.
   */
  async function withHolder<Login extends object>(
    load: Promise<{ login: Login; user: UserRecord; role: RoleRecord } | undefined>,
  ): Promise<Login | undefined> {
    const changes = { users: users.changeCount, roles: roles.changeCount };
    const found = await load;
    if (!found) return undefined;

    users.addIfUnchanged(String(found.user.id), found.user, changes.users);
    roles.addIfUnchanged(String(found.role.id), found.role, changes.roles);
    return found.login;
  }

  const sessions = new ControlCache<SessionRecord>({
    ...ofPeople,
    topic: changeTopics.sessions,
    load: id => withHolder(loadSession(id, control)),
  });

  // A provider may have opened 100,000 sessions, which are not announced one by one. Those of
  // other tenants stay: each of them would cost a query.
  feed.subscribe(changeTopics.providerSessions, tenantId => {
    if (tenantId === '*') return sessions.invalidate('*');
    sessions.invalidateWhere(
      ({ tenantId: id, identityId }) => identityId !== undefined && String(id) === tenantId,
    );
  });

  const programKeys = new ControlCache<ProgramKeyRecord>({
    ...ofTenants,
    ttlMs: 5 * minuteMs,
    topic: changeTopics.programKeys,
    load: name => withHolder(loadProgramKey(name, control)),
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

  return { tenants, sessions, programKeys, users, roles, legacyTokens };
}

const user = `
  json_build_object('id', u.id, 'guid', u.guid, 'tenantId', u.tenant_id, 'email', email, 'firstName', first_name,
                    'lastName', last_name, 'roleId', role_id, 'scope', scope, 'entityId', entity_id,
                    'entitySince', entity_since, 'isProgram', kind = 'program', 'networks', networks,
                    'disabled', disabled_at is not null) as "user"`;
const role = `json_build_object('id', r.id, 'name', r.name, 'permissions', permissions,
                    'requiresSecondFactor', requires_second_factor) as role`;

interface HolderRow {
  readonly user: UserRecord;
  readonly role: Omit<RoleRecord, 'permissions'> & { readonly permissions: readonly string[] };
}

interface CallerRow extends HolderRow {
  readonly login: Omit<SessionRecord, 'id' | 'tenantId' | 'userId' | 'identityId' | 'endsAt'> & {
    readonly identityId: number | null;
    readonly endsAt: number | null;
  };
}

interface KeyRow extends HolderRow {
  readonly key: Omit<ProgramKeyRecord, 'name'>;
}

const userById = `select ${user} from users u where u.id = $1`;
const roleById = `select ${role} from roles r where r.id = $1`;
const sessionById = `
  select json_build_object(
           'revoked', s.revoked_at is not null or ends_at <= now(), 'methods', s.methods,
           'passwordIsShort', s.password_is_short, 'identityId', s.identity_id,
           'idpIsFactor', ${isProvedByProvider('s')},
           'endsAt', case when isfinite(ends_at) then floor(extract(epoch from ends_at) * 1000) end) as login,
         ${user}, ${role}
    from sessions s join users u on u.id = s.user_id join roles r on r.id = u.role_id
   cross join lateral end_of_session(s.identity_id, s.created_at) ends_at
   where s.id = $1`;

const key = `
  json_build_object('id', k.id, 'tenantId', k.tenant_id, 'tenantGuid', t.guid, 'userId', k.program_id,
                    'expiresAt', floor(extract(epoch from k.expires_at) * 1000),
                    'revoked', k.revoked_at is not null) as key`;
const keyWhere = `
  select ${key}, ${user}, ${role}
    from program_keys k join tenants t on t.id = k.tenant_id
    join users u on u.id = k.program_id join roles r on r.id = u.role_id
   where `;
const keyByHash = `${keyWhere} k.hash = $1::bytea`;
const keyById = `${keyWhere} k.id = $1::uuid`;

async function loadUser(id: string, control: ControlDatabase): Promise<UserRecord | undefined> {
  const [row] = await queryControl<Pick<HolderRow, 'user'>>(control, 'user_by_id', userById, [id]);
  return row?.user;
}

async function loadRole(id: string, control: ControlDatabase): Promise<RoleRecord | undefined> {
  const [row] = await queryControl<Pick<HolderRow, 'role'>>(control, 'role_by_id', roleById, [id]);
  return row && toRole(row);
}

/** Loads a session together with its user and the user's role, which the request needs next. */
async function loadSession(
  id: string,
  control: ControlDatabase,
): Promise<{ login: SessionRecord; user: UserRecord; role: RoleRecord } | undefined> {
  const [row] = await queryControl<CallerRow>(control, 'session_by_id', sessionById, [id]);
  if (!row) return undefined;
  const { user, login } = row;
  return {
    login: {
      ...login,
      id,
      tenantId: user.tenantId,
      userId: user.id,
      identityId: login.identityId ?? undefined,
      endsAt: login.endsAt ?? undefined,
    },
    user,
    role: toRole(row),
  };
}

/**
 * Loads the key of a program together with the program and its role, as `loadSession` does.
 * @param name the hash of the key (`hashName`), or its id
 */
async function loadProgramKey(
  name: string,
  control: ControlDatabase,
): Promise<{ login: ProgramKeyRecord; user: UserRecord; role: RoleRecord } | undefined> {
  const [row] = name.startsWith('\\x')
    ? await queryControl<KeyRow>(control, 'program_key_by_hash', keyByHash, [name])
    : await queryControl<KeyRow>(control, 'program_key_by_id', keyById, [name]);
  return row && { login: { ...row.key, name }, user: row.user, role: toRole(row) };
}

function toRole({ role }: Pick<HolderRow, 'role'>): RoleRecord {
  return { ...role, permissions: new Set(role.permissions) };
}

/**
 * The cache key of a legacy token, or of the key of a program: its hash in the notation of
 * PostgreSQL for `bytea`, which the change feed uses too.
 */
export function hashName(hash: string): string {
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
