import { transactControl } from '../../control/database.ts';
import { lockPeople } from '../../control/people-lock.ts';
import { initialRoles, type Permission, permissions } from '../../control/permissions.ts';
import type { Installation, InstallationAccess } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import type { Statements } from '../../postgres/statements.ts';
import { readTenant } from './read-tenants.ts';
import { findTenant } from './tenants.ts';

/** A role as the command line shows it. */
export interface RoleSummary {
  name: string;
  /** How many users have it. */
  users: number;
  permissions: string[];
}

/** Returns the roles of a tenant, ordered by name. */
export async function listRoles(
  access: InstallationAccess & { readonly statements: Statements },
  slug: string,
): Promise<RoleSummary[]> {
  const { id } = await readTenant(access, slug);
  return access.statements.execute(
    `select name, (select count(*)::int from users u where u.role_id = r.id) as users, permissions
       from roles r where tenant_id = ? order by lower(name), id`,
    [id],
  );
}

const insertRole = `
  insert into roles (tenant_id, name, permissions)
  select $1, $2, $3 where not exists (select from roles where tenant_id = $1 and lower(name) = lower($2))
  returning name`;

/** @throws {OperatorError} when the tenant has a role of that name, in any letter case, or a permission is unknown */
export async function addRole(installation: Installation, slug: string, name: string, granted: string[]) {
  requirePermissions(granted);
  const roleName = name.normalize('NFC').trim();
  if (roleName === '' || roleName.length > 255 || /\p{Cc}/u.test(roleName))
    throw new OperatorError('The name of a role has 1 to 255 characters, and no control characters', { usage: true });
  const { id } = await findTenant(installation, slug);
  const ordered = permissions.filter(permission => granted.includes(permission));
  const added = await transactControl(installation.control, async query => {
    await lockPeople(query, id);
    return query('operator_insert_role', insertRole, [id, roleName, ordered]);
  });
  if (added.length === 0) throw new OperatorError(`${slug} has a role ${roleName} already`);
  return { name: roleName, users: 0, permissions: [...ordered] };
}

const grantPermissions = `
  update roles set permissions = permissions || array(select p from unnest($3::text[]) p where p <> all (permissions))
   where tenant_id = $1 and name = $2`;
const revokePermissions = `
  update roles set permissions = array(select p from unnest(permissions) with ordinality as t (p, n) where p <> all ($3::text[]) order by n)
   where tenant_id = $1 and name = $2`;
const readRole = `
  select name, (select count(*)::int from users u where u.role_id = r.id) as users, permissions
    from roles r where tenant_id = $1 and name = $2`;

/**
 * Adds permissions to a role, or removes them. All processes apply it within a second; what is added counts from the
 * next token of a user on.
 * @throws {OperatorError} when there is no such role, or a permission is unknown
 */
export async function changePermissions(
  installation: Installation,
  slug: string,
  name: string,
  changed: string[],
  change: 'grant' | 'revoke',
): Promise<RoleSummary> {
  if (change === 'grant') requirePermissions(changed);
  const { id } = await findTenant(installation, slug);
  const text = change === 'grant' ? grantPermissions : revokePermissions;
  const [role] = await transactControl(installation.control, async query => {
    await lockPeople(query, id);
    await query(`operator_${change}`, text, [id, name, changed]);
    return query<RoleSummary>('operator_role', readRole, [id, name]);
  });
  if (!role) throw noSuchRole(slug, name);
  return role;
}

/**
 * Returns which permissions a change would add or remove, and how many users have the role. Changes nothing.
 * @throws {OperatorError} when there is no such role, or a permission is unknown
 */
export async function planPermissions(
  installation: Installation,
  slug: string,
  name: string,
  named: string[],
  change: 'grant' | 'revoke',
): Promise<{ changed: string[]; users: number }> {
  if (change === 'grant') requirePermissions(named);
  const role = (await listRoles(installation, slug)).find(each => each.name === name);
  if (!role) throw noSuchRole(slug, name);
  const changed = named.filter(permission => role.permissions.includes(permission) === (change === 'revoke'));
  return { changed, users: role.users };
}

const deleteRole = `
  delete from roles r where tenant_id = $1 and name = $2 and not exists (select from users u where u.role_id = r.id)
  returning name`;

/** @throws {OperatorError} when there is no such role, somebody has it, or every tenant needs it */
export async function removeRole(installation: Installation, slug: string, name: string): Promise<void> {
  if (initialRoles.some(role => role.name === name))
    throw new OperatorError(`Every tenant has the role ${name}: it cannot be removed`);
  const { id } = await findTenant(installation, slug);
  const [removed, left] = await transactControl(installation.control, async query => {
    await lockPeople(query, id);
    const deleted = await query('operator_delete_role', deleteRole, [id, name]);
    return [deleted.length, await query<RoleSummary>('operator_role', readRole, [id, name])] as const;
  });
  if (removed > 0) return;
  if (!left[0]) throw noSuchRole(slug, name);
  throw new OperatorError(
    `Users of ${slug} have the role ${name}. Give them another: npx backoffice user change ${slug} EMAIL --role ROLE`,
  );
}

export function noSuchRole(slug: string, name: string): OperatorError {
  return new OperatorError(`${slug} has no role ${name}. List its roles: npx backoffice role list ${slug}`);
}

function requirePermissions(names: string[]): asserts names is Permission[] {
  const unknown = names.filter(name => !(permissions as readonly string[]).includes(name));
  if (unknown.length > 0)
    throw new OperatorError(`Unknown permission ${unknown.join(', ')}. The permissions are ${permissions.join(', ')}`, {
      usage: true,
    });
}
