import { type ControlDatabase, queryControl } from './database.ts';
import type { RoleRecord, SessionRecord, UserRecord } from './records.ts';
import type { Scope } from './scopes.ts';

interface UserRow {
  user_id: string;
  user_guid: string;
  tenant_id: string;
  email: string;
  first_name: string;
  last_name: string;
  role_id: string;
  scope: Scope;
  entity_id: string | null;
  disabled: boolean;
}

interface RoleRow {
  role_id: string;
  role_name: string;
  permissions: string[];
}

const userColumns = `
  u.id as user_id, u.guid as user_guid, u.tenant_id, email, first_name, last_name, role_id, scope, entity_id,
  disabled_at is not null as disabled`;
const roleColumns = 'r.id as role_id, r.name as role_name, permissions';

const userById = `select ${userColumns} from users u where u.id = $1`;
const roleById = `select ${roleColumns} from roles r where r.id = $1`;
const sessionById = `
  select s.revoked_at is not null as revoked, ${userColumns}, ${roleColumns}
    from sessions s join users u on u.id = s.user_id join roles r on r.id = u.role_id
   where s.id = $1`;

export async function loadUser(id: string, control: ControlDatabase): Promise<UserRecord | undefined> {
  const [row] = await queryControl<UserRow>(control, 'user_by_id', userById, [id]);
  return row && toUser(row);
}

export async function loadRole(id: string, control: ControlDatabase): Promise<RoleRecord | undefined> {
  const [row] = await queryControl<RoleRow>(control, 'role_by_id', roleById, [id]);
  return row && toRole(row);
}

/** Loads a session together with its user and the user's role, which the request needs next. */
export async function loadSession(
  id: string,
  control: ControlDatabase,
): Promise<{ session: SessionRecord; user: UserRecord; role: RoleRecord } | undefined> {
  const [row] = await queryControl<UserRow & RoleRow & { revoked: boolean }>(control, 'session_by_id', sessionById, [
    id,
  ]);
  if (!row) return undefined;
  const user = toUser(row);
  const session = { id, tenantId: user.tenantId, userId: user.id, revoked: row.revoked };
  return { session, user, role: toRole(row) };
}

function toUser(row: UserRow): UserRecord {
  return {
    id: Number(row.user_id),
    guid: row.user_guid,
    tenantId: Number(row.tenant_id),
    email: row.email,
    firstName: row.first_name,
    lastName: row.last_name,
    roleId: Number(row.role_id),
    scope: row.scope,
    entityId: row.entity_id === null ? null : Number(row.entity_id),
    disabled: row.disabled,
  };
}

function toRole(row: RoleRow): RoleRecord {
  return { id: Number(row.role_id), name: row.role_name, permissions: new Set(row.permissions) };
}
