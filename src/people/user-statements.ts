import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { type Scope, scopes } from '../control/scopes.ts';
import { guid, longId, timestamp } from '../http/fields.ts';
import { type Condition, type RowValues, type Statement, TableStatements } from '../postgres/table-statements.ts';
import type { Caller } from '../tenancy/caller.ts';

/** A user as administrators see one. Only read; the control database has the entity `User`. */
const PersonSchema = defineEntity({
  name: 'Person',
  tableName: 'users',
  properties: {
    id: p.bigint('number').primary(),
    guid: p.uuid(),
    email: p.text(),
    firstName: p.text(),
    lastName: p.text(),
    role: p.text().formula(users => `(select r.name from roles r where r.id = ${users}.role_id)`),
    scope: p.text().$type<Scope>(),
    entityId: p.bigint('number').nullable(),
    isDisabled: p.boolean().formula(users => `(${users}.disabled_at is not null)`),
    confirmedAt: p.datetime().nullable(),
    /** A login inserts a session, and deletes only expired ones. */
    lastLoginAt: p
      .datetime()
      .nullable()
      .formula(users => `(select max(s.created_at) from sessions s where s.user_id = ${users}.id)`),
    createdAt: p.datetime(),
  },
});
class Person extends PersonSchema.class {}
PersonSchema.setClass(Person);

export const userView = z
  .object({
    Id: longId(),
    Guid: guid(),
    Email: z.string(),
    FirstName: z.string(),
    LastName: z.string(),
    Role: z.string(),
    Scope: z.enum(scopes),
    EntityId: longId().nullable(),
    IsDisabled: z.boolean(),
    ConfirmedAt: timestamp().nullable(),
    LastLoginAt: timestamp().nullable(),
    CreatedAt: timestamp(),
  })
  .meta({ title: 'User' });
export type UserView = z.output<typeof userView>;

export const userTable = new TableStatements(Person, userView);

/** The condition for the users that a caller may see: those of the own entity for scope Self; without one, nobody. */
export function visibleTo(tenantId: number, { scope, entityId }: Caller): Condition[] {
  const ofTenant: Condition = ['tenant_id = ?', tenantId];
  return scope === 'Self' ? [ofTenant, ['entity_id = ?', entityId ?? 0]] : [ofTenant];
}

/** Selects one user, as the JSON text that `viewOf` reads. */
export function userById(conditions: readonly Condition[], id: number): Statement {
  return userTable.selectJson([...conditions, ['id = ?', id]]);
}

/** Reads the record of a statement that selects one as JSON; undefined when there is none. */
export function viewOf<View>([row]: readonly RowValues[]): View | undefined {
  return row && (JSON.parse(row.json as string) as View);
}
