import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { Role } from '../../control/control-entities.ts';
import { initialRoles } from '../../control/permissions.ts';
import { type Scope, scopes } from '../../control/scopes.ts';
import { storedEmail } from '../../lib/http/request/email.ts';
import { describeFields, guid, longId, timestamp } from '../../lib/http/request/fields.ts';
import type { Condition, RowValues, Statement } from '../../lib/postgres/statement.ts';
import { TableStatements } from '../../lib/postgres/table-statements.ts';

const mailStates = ['waiting', 'sent', 'refused'] as const;
type MailState = (typeof mailStates)[number];

/** SQL: a column of the newest mail to a user. */
const lastMail = (users: unknown, value: string): string =>
  `(select ${value} from mail_deliveries m where m.user_id = ${users}.id order by m.id desc limit 1)`;

/**
 * A user as administrators see one. For reads only: the entity of the control database is
 * `User`.
 */
const PersonSchema = defineEntity({
  name: 'Person',
  tableName: 'users',
  properties: {
    id: p.bigint('number').primary(),
    guid: p.uuid(),
    email: p.text(),
    firstName: p.text(),
    lastName: p.text(),
    roleId: p.bigint('number'),
    role: p.text().formula(users => `(select r.name from roles r where r.id = ${users}.role_id)`),
    scope: p.text().$type<Scope>(),
    entityId: p.bigint('number').nullable(),
    isDisabled: p.boolean().formula(users => `(${users}.disabled_at is not null)`),
    confirmedAt: p.datetime().nullable(),
    /** The time of the last login, which a trigger of `sessions` sets. */
    lastLoginAt: p.datetime().nullable(),
    createdAt: p.datetime(),
    mailState: p
      .text()
      .$type<MailState>()
      .formula(users => lastMail(users, 'state'))
      .nullable(),
    mailReason: p
      .text()
      .formula(users => lastMail(users, 'reason'))
      .nullable(),
    mailAt: p
      .datetime()
      .formula(users => lastMail(users, 'created_at'))
      .nullable(),
  },
});
class Person extends PersonSchema.class {}
PersonSchema.setClass(Person);

export const emailDescription =
  'The e-mail address, with which the user logs in. No two users of a tenant have the same.';
/** The fields of a user that administrators decide. */
export const userDescriptions = {
  FirstName: 'The first name of the person.',
  LastName: 'The last name of the person.',
  Role: 'The name of the role, which grants the permissions.',
  Scope: 'Whether the user accesses the data of every entity, or of the own entity only.',
  EntityId: 'The `Id` of the entity that the user belongs to; null if it is none.',
};

export const userView = describeFields(
  {
    Id: longId(),
    Guid: guid(),
    Email: storedEmail(),
    FirstName: z.string(),
    LastName: z.string(),
    Role: z.string(),
    Scope: z.enum(scopes),
    EntityId: longId().nullable(),
    IsDisabled: z.boolean(),
    ConfirmedAt: timestamp().nullable(),
    LastLoginAt: timestamp().nullable(),
    CreatedAt: timestamp(),
    MailState: z.enum(mailStates).nullable(),
    MailReason: z.string().nullable(),
    MailAt: timestamp().nullable(),
    RoleId: longId(),
  },
  {
    ...userDescriptions,
    Id: 'The number of the user, which the service chooses.',
    Guid: 'The guid of the user, as `userGuid` of `/api/v1/auth/me` and `UserGuid` of the audit log name it.',
    Email: emailDescription,
    IsDisabled: 'Whether the logins of the user are refused.',
    ConfirmedAt: 'When the user first proved to own the address; null until then.',
    LastLoginAt: 'When the user last logged in; null if never.',
    CreatedAt: 'When the user was invited, registered or added.',
    MailState:
      'How the last mail to the user is doing: `waiting` to be accepted by the mail server, `sent`, or `refused`, and not ' +
      'tried again; null if there was none in the last weeks.',
    MailReason: 'Why the last mail was refused, or waits; null if nothing has failed.',
    MailAt: 'When the last mail was asked for.',
    RoleId: 'The `Id` of the role.',
  },
).meta({ title: 'User' });
export type UserView = z.output<typeof userView>;

/**
 * The fields that logins, mails and the name of the role change. Such a change is not a change
 * of the user: another role has another `RoleId`.
 */
export const volatileUserFields: readonly (keyof UserView)[] = [
  'Role',
  'LastLoginAt',
  'MailState',
  'MailReason',
  'MailAt',
];

export const userTable = new TableStatements(Person, userView);

/** Selects one user, as the JSON text that `viewOf` reads. */
export function userById(conditions: readonly Condition[], id: number): Statement {
  return userTable.selectJson([...conditions, ['id = ?', id]]);
}

/** Parses the record of a statement that selects it as JSON; undefined when there is none. */
export function viewOf<View>([row]: readonly RowValues[]): View | undefined {
  return row && JSON.parse(String(row.json));
}

/** The fields of a role that administrators decide. */
export const roleFields = {
  Name: 'The name of the role. No two roles of a tenant have the same.',
  Permissions: 'What the users with this role may do.',
};

export const roleView = describeFields(
  {
    Id: longId(),
    Name: z.string(),
    Permissions: z.array(z.string()),
    RequiresSecondFactor: z.literal(true).optional(),
  },
  {
    Id: 'The number of the role, which the service chooses.',
    ...roleFields,
    RequiresSecondFactor:
      'Only if true: people with this role need a second factor. Set by ' +
      '`PUT /api/v1/Roles/{id}/second-factor`; a PUT of the role leaves it alone.',
  },
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

/** Parses the role of a statement that selects it as JSON; undefined when there is none. */
export function roleOf(rows: readonly RowValues[]): RoleView | undefined {
  const role = viewOf<StoredRole>(rows);
  return role && shownRole(role);
}

/** Turns the JSON text of a role as it is stored into that of the response. */
export function roleText(json: string): string {
  return JSON.stringify(shownRole(JSON.parse(json)));
}

type StoredRole = Omit<RoleView, 'RequiresSecondFactor'> & { RequiresSecondFactor: boolean };

/** Only a role that requires a second factor says so: clients of 0.2.0 know no such field. */
function shownRole({ RequiresSecondFactor, ...role }: StoredRole): RoleView {
  return RequiresSecondFactor ? { ...role, RequiresSecondFactor } : role;
}

/** The maximum number of roles of a tenant: their list has no pages. */
export const maxRoles = 500;

/**
 * The roles that every tenant has: registration gives one of them, and operators rely on the
 * other.
 */
export function isBuiltIn(name: string): boolean {
  return initialRoles.some(role => role.name === name);
}
