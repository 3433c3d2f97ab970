import { z } from 'zod';
import { initialRoles } from '../control/permissions.ts';
import { longId } from '../http/fields.ts';
import type { Statement } from '../postgres/table-statements.ts';

export const roleView = z
  .object({ Id: longId(), Name: z.string(), Permissions: z.array(z.string()) })
  .meta({ title: 'Role' });
export type RoleView = z.output<typeof roleView>;

const selectRoles = `
  select id::float8 as "Id", name as "Name", permissions as "Permissions" from roles where tenant_id = $1`;

/** Selects one role. */
export function roleById(tenantId: number, id: number): Statement {
  return { name: 'role_view', text: `${selectRoles} and id = $2`, values: [tenantId, id] };
}

/** Selects the roles of a tenant: at most `maxRoles`, if an operator has added no more. */
export function allRoles(tenantId: number): Statement {
  return { name: 'role_views', text: `${selectRoles} order by lower(name), id`, values: [tenantId] };
}

/** Of a tenant. The list is served whole. */
export const maxRoles = 500;

/** The roles that every tenant has: registration gives one of them, and operators rely on the other. */
export function isBuiltIn(name: string): boolean {
  return initialRoles.some(role => role.name === name);
}
