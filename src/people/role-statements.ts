import { z } from 'zod';
import { initialRoles } from '../control/permissions.ts';
import { Role } from '../control/user-entities.ts';
import { describeFields } from '../http/describe-fields.ts';
import { longId } from '../http/fields.ts';
import type { Statement } from '../postgres/statement.ts';
import { TableStatements } from '../postgres/table-statements.ts';

/** The fields of a role that administrators decide. */
export const roleFields = {
  Name: 'The name of the role. No two roles of a tenant have the same.',
  Permissions: 'What the users with this role may do.',
};

export const roleView = describeFields(
  { Id: longId(), Name: z.string(), Permissions: z.array(z.string()) },
  { Id: 'The number of the role, which the service chooses.', ...roleFields },
).meta({ title: 'Role' });
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
