import type { QueryControl } from '../../control/database.ts';
import { permissions as allPermissions, type Permission } from '../../control/permissions.ts';
import type { Precondition } from '../../lib/http/response/representation.ts';
import { problem, type ReferenceCount } from '../../lib/problems.ts';
import { requireMayGrant, requireMayManage } from '../../tenancy/permission-rules.ts';
import type { PeopleTransaction } from './change-people.ts';
import { isBuiltIn, maxRoles, type RoleView, roleById, roleOf } from './user-statements.ts';

interface RoleFields {
  readonly Name: string;
  readonly Permissions: readonly Permission[];
}

/** The role that a request names. */
interface RoleKey {
  readonly tenantId: number;
  readonly id: number | undefined;
  readonly precondition?: Precondition | undefined;
}

const insertRole = `
  insert into roles (tenant_id, name, permissions) values ($1, $2, $3) returning id::float8 as id`;
const updateRole = 'update roles set name = $2, permissions = $3 where id = $1';
const removeRole = 'delete from roles where id = $1';
const roleByName = `
  select id::float8 as "Id", name as "Name", permissions as "Permissions" from roles where tenant_id = $1 and name = $2`;
const countRoles = 'select count(*)::int as count from roles where tenant_id = $1';
const roleWithName =
  'select from roles where tenant_id = $1 and lower(name) = lower($2) and id <> $3';
const usersWithRole = `
  select case kind when 'program' then 'Program' else 'User' end as resource, count(*)::int as count
    from users where tenant_id = $1 and role_id = $2 group by kind
   union all
  select 'IdentityProvider', count(*)::int
    from identity_providers where tenant_id = $1 and creates_role_id = $2 having count(*) > 0
   order by resource desc`;

/**
 * @returns the id
 * @throws {Problem} `forbidden`, `duplicate`, `limit_reached`
 */
export async function createRole(
  { query, permissions }: PeopleTransaction,
  tenantId: number,
  { Name, Permissions }: RoleFields,
): Promise<number> {
  requireMayGrant(Permissions, permissions);
  await requireFreeName(query, tenantId, Name);
  const [counted] = await query<{ count: number }>('count_roles', countRoles, [tenantId]);
  if ((counted?.count ?? 0) >= maxRoles) throw problem('limit_reached');
  const [added] = await query<{ id: number }>('insert_role', insertRole, [
    tenantId,
    Name,
    ordered(Permissions),
  ]);
  return added?.id ?? 0;
}

/**
 * @returns the id
 * @throws {Problem} `not_found`, `forbidden`, `wrong_state`, `precondition_failed`,
 *   `duplicate`
 */
export async function changeRole(
  transaction: PeopleTransaction,
  key: RoleKey,
  { Name, Permissions }: RoleFields,
): Promise<number> {
  const { query, permissions } = transaction;
  const role = await findManagedRole(transaction, key);
  requireMayGrant(Permissions, permissions);
  await requireFreeName(query, key.tenantId, Name, role.Id);
  await replaceRole(query, { ...role, Name, Permissions: ordered(Permissions) });
  return role.Id;
}

/**
 * Checks the fields of a role that the contract takes.
 * @param key of a role that shall get them; undefined for a new one
 * @throws {Problem} `duplicate`, which has the error of a name that is taken, and those of
 *   `changeRole`
 */
export async function requireValidRole(
  transaction: PeopleTransaction,
  tenantId: number,
  { Name }: { readonly Name?: string },
  key?: RoleKey,
): Promise<void> {
  const role = key && (await findManagedRole(transaction, key));
  if (Name !== undefined) await requireFreeName(transaction.query, tenantId, Name, role?.Id);
}

/** Writes the name and the permissions of a role. */
async function replaceRole(
  query: QueryControl,
  { Id, Name, Permissions }: RoleView,
): Promise<void> {
  await query('update_role', updateRole, [Id, Name, Permissions]);
}

/** @returns undefined when the tenant has no such role */
export async function findRole(
  query: QueryControl,
  tenantId: number,
  name: string,
): Promise<RoleView | undefined> {
  return (await query<RoleView>('role_by_name', roleByName, [tenantId, name]))[0];
}

/**
 * @throws {Problem} `not_found`, `forbidden`, `wrong_state`, `precondition_failed`, `in_use`
 */
export async function deleteRole(transaction: PeopleTransaction, key: RoleKey): Promise<void> {
  const { query, permissions } = transaction;
  const { Id } = await findManagedRole(transaction, key);
  const references = await query<ReferenceCount>('users_with_role', usersWithRole, [
    key.tenantId,
    Id,
  ]);
  if (references.length > 0) {
    throw problem('in_use', { references: permissions.has('users.read') ? references : [] });
  }
  await query('delete_role', removeRole, [Id]);
}

/** Returns a role that the caller may change. */
async function findManagedRole(
  { query, permissions }: PeopleTransaction,
  { tenantId, id, precondition }: RoleKey,
): Promise<RoleView> {
  const { name, text, values } = roleById(tenantId, id ?? 0);
  const role = roleOf(await query(name, text, values));
  if (!role) throw problem('not_found');
  if (isBuiltIn(role.Name)) {
    throw problem('wrong_state', {
      detail: `The role ${role.Name} is built in, and cannot be changed.`,
    });
  }
  requireMayManage(role.Permissions, permissions);
  precondition?.(role);
  return role;
}

/**
 * Requires that no other role has the name, in any letter case, so that nobody confuses two
 * roles.
 */
async function requireFreeName(
  query: QueryControl,
  tenantId: number,
  name: string,
  exceptId = 0,
): Promise<void> {
  if ((await query('role_with_name', roleWithName, [tenantId, name, exceptId])).length > 0) {
    throw problem('duplicate', { errors: { Name: [{ message: 'is taken', code: 'taken' }] } });
  }
}

/** Returns each permission once, in the order of the list of all permissions. */
function ordered(chosen: readonly Permission[]): Permission[] {
  return allPermissions.filter(permission => chosen.includes(permission));
}
