import { z } from 'zod';
import { initialRoles } from '../control/permissions.ts';
import { Role } from '../control/user-entities.ts';
import { longId } from '../http/fields.ts';
import { type Statement, TableStatements } from '../postgres/table-statements.ts';

export const roleView = z
  .object({ Id: longId(), Name: z.string(), Permissions: z.array(z.string()) })
  .meta({ title: 'Role' });
export type RoleView = z.output<typeof roleView>;

export const roleTable = new TableStatements(Role, roleView);

/** Selects one role, as the JSON text that `viewOf` reads. */
export function roleById(tenantId: number, id: number): Statement {
  return roleTable.selectJson([
    ['tenant_id = ?', tenantId],
    ['id = ?', id],
  ]);
}

/** Of a tenant. The list is served whole. */
export const maxRoles = 500;

/** The roles that every tenant has: registration gives one of them, and operators rely on the other. */
export function isBuiltIn(name: string): boolean {
  return initialRoles.some(role => role.name === name);
}
