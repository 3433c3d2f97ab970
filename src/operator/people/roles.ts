import { type Permission, permissions } from '../../control/permissions.ts';
import type { ControlStatements, Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { createRole, deleteRole, findRole, ordered, replaceRole } from '../../people/role-records.ts';
import { maxRoles } from '../../people/user-statements.ts';
import { readTenant } from '../tenants/read-tenants.ts';
import { findTenant } from '../tenants/tenants.ts';
import { changePeopleOf } from './change-people-of.ts';
import { requireName } from './require-name.ts';

/** A role as the command line shows it. */
export interface RoleSummary {
  name: string;
  /** How many users have it. */
  users: number;
  permissions: string[];
}

/** Returns the roles of a tenant, ordered by name. */
export async function listRoles(access: ControlStatements, slug: string): Promise<RoleSummary[]> {
  const { id } = await readTenant(access, slug);
  return access.statements.execute(
    `select name, (select count(*)::int from users u where u.role_id = r.id) as users, permissions
       from roles r where tenant_id = ? order by lower(name), id`,
    [id],
  );
}

/**
 * Adds a role.
 * @param isDryRun true to return the role, and to change nothing
 * @throws {OperatorError} when the tenant has a role of that name, in any letter case, or too many; when a permission
 *   is unknown, or the name not acceptable
 */
export async function addRole(
  installation: Installation,
  slug: string,
  name: string,
  granted: string[],
  isDryRun = false,
): Promise<RoleSummary> {
  requirePermissions(granted);
  const fields = { Name: requireName('name of the role', name), Permissions: granted };
  const tenant = await findTenant(installation, slug);
  await changePeopleOf(installation, tenant, {
    change: transaction => createRole(transaction, tenant.id, fields),
    refusals: {
      duplicate: `${slug} has a role ${fields.Name} already`,
      limit_reached: `${slug} has ${maxRoles} roles, and cannot have more`,
    },
    isDryRun,
  });
  return { name: fields.Name, users: 0, permissions: ordered(granted) };
}

/**
 * Adds permissions to a role, or removes them. All processes apply it within a second; what is added counts from the
 * next token of a user on.
 * @param isDryRun true to return the result, and to change nothing
 * @returns the role, and which permissions it got or lost
 * @throws {OperatorError} when there is no such role, or a permission is unknown; when nobody could manage the users of
 *   the tenant any more
 */
export async function changePermissions(
  installation: Installation,
  { slug, role: name, permissions: named }: { slug: string; role: string; permissions: string[] },
  change: 'grant' | 'revoke',
  isDryRun = false,
): Promise<{ role: RoleSummary; changed: string[] }> {
  const users = (await listRoles(installation, slug)).find(role => role.name === name)?.users ?? 0;
  const tenant = await findTenant(installation, slug);
  return changePeopleOf(installation, tenant, {
    change: async ({ query }) => {
      const role = await findRole(query, tenant.id, name);
      if (!role) throw noSuchRole(slug, name);
      // Of what a role has, also a permission can be revoked that only another build knows.
      requirePermissions(change === 'grant' ? named : named.filter(each => !role.Permissions.includes(each)));
      const changed = [...new Set(named)].filter(
        permission => role.Permissions.includes(permission) === (change === 'revoke'),
      );
      const kept = role.Permissions.filter(permission => !changed.includes(permission));
      const Permissions = change === 'grant' ? [...kept, ...changed] : kept;
      await replaceRole(query, { ...role, Permissions });
      return { role: { name, users, permissions: Permissions }, changed };
    },
    isDryRun,
  });
}

/**
 * @param isDryRun true to check that the role can be removed, and to change nothing
 * @throws {OperatorError} when there is no such role, somebody has it, or every tenant needs it
 */
export async function removeRole(
  installation: Installation,
  slug: string,
  name: string,
  isDryRun = false,
): Promise<void> {
  const tenant = await findTenant(installation, slug);
  await changePeopleOf(installation, tenant, {
    change: async transaction => {
      const role = await findRole(transaction.query, tenant.id, name);
      if (!role) throw noSuchRole(slug, name);
      await deleteRole(transaction, { tenantId: tenant.id, id: role.Id });
    },
    refusals: {
      forbidden: `Every tenant has the role ${name}: it cannot be removed`,
      in_use:
        `Users of ${slug} have the role ${name}. Give them another: ` +
        `npx backoffice user change ${slug} EMAIL --role ROLE`,
    },
    isDryRun,
  });
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
