import { type ControlDatabase, queryControl } from './database.ts';
import type { RoleRecord, SessionRecord, UserRecord } from './records.ts';

const user = `
  json_build_object('id', u.id, 'guid', u.guid, 'tenantId', u.tenant_id, 'email', email, 'firstName', first_name,
                    'lastName', last_name, 'roleId', role_id, 'scope', scope, 'entityId', entity_id,
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

export async function loadUser(id: string, control: ControlDatabase): Promise<UserRecord | undefined> {
  const [row] = await queryControl<Pick<CallerRow, 'user'>>(control, 'user_by_id', userById, [id]);
  return row?.user;
}

export async function loadRole(id: string, control: ControlDatabase): Promise<RoleRecord | undefined> {
  const [row] = await queryControl<Pick<CallerRow, 'role'>>(control, 'role_by_id', roleById, [id]);
  return row && toRole(row);
}

/** Loads a session together with its user and the user's role, which the request needs next. */
export async function loadSession(
  id: string,
  control: ControlDatabase,
): Promise<{ session: SessionRecord; user: UserRecord; role: RoleRecord } | undefined> {
  const [row] = await queryControl<CallerRow>(control, 'session_by_id', sessionById, [id]);
  if (!row) return undefined;
  const { user, revoked } = row;
  return { session: { id, tenantId: user.tenantId, userId: user.id, revoked }, user, role: toRole(row) };
}

function toRole({ role }: Pick<CallerRow, 'role'>): RoleRecord {
  return { ...role, permissions: new Set(role.permissions) };
}
