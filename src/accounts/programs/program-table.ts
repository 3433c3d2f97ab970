import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { isValidKey, keyDays } from '../../control/key-lifetime.ts';
import { type Scope, scopes } from '../../control/scopes.ts';
import {
  describeFields,
  guid,
  intCount,
  lengths,
  longId,
  text,
  timestamp,
} from '../../lib/http/request/fields.ts';
import type { Condition, Statement } from '../../lib/postgres/statement.ts';
import { TableStatements } from '../../lib/postgres/table-statements.ts';
import { invalid } from '../../lib/runtime/field-error.ts';
import { networkText } from '../../tenancy/program-networks.ts';

/** A program as administrators see one. For reads only: a program is a row of `users`. */
const ProgramSchema = defineEntity({
  name: 'Program',
  tableName: 'users',
  properties: {
    id: p.bigint('number').primary(),
    guid: p.uuid(),
    name: p.text().fieldName('first_name'),
    roleId: p.bigint('number'),
    role: p.text().formula(users => `(select r.name from roles r where r.id = ${users}.role_id)`),
    scope: p.text().$type<Scope>(),
    entityId: p.bigint('number').nullable(),
    networks: p.array().formula(users => `(${users}.networks::text[])`),
    isDisabled: p.boolean().formula(users => `(${users}.disabled_at is not null)`),
    keys: p.integer().formula(
      users =>
        `(select count(*)::int from program_keys k where k.program_id = ${users}.id
               and k.tenant_id = ${users}.tenant_id and ${isValidKey})`,
    ),
    lastUsedAt: p
      .datetime()
      .formula(
        users =>
          `(select max(k.last_used_at) from program_keys k where k.program_id = ${users}.id
               and k.tenant_id = ${users}.tenant_id)`,
      )
      .nullable(),
    createdAt: p.datetime(),
  },
});
class Program extends ProgramSchema.class {}
ProgramSchema.setClass(Program);

/** Maximum networks of a program: they are compared at each of its requests. */
const maxNetworks = 20;

const network = () =>
  z
    .string()
    .refine(
      value => networkText(value) !== undefined,
      invalid(
        'must be an address, or a network in CIDR notation without bits behind its prefix',
        'wrong_format',
      ),
    );

const networks = () => z.array(network()).max(maxNetworks);

const descriptions = {
  Name: 'The name of the program, by which people recognise it.',
  Role: 'The name of the role, which grants the permissions.',
  Scope: 'Whether the program accesses the data of every entity, or of its own entity only.',
  EntityId: 'The `Id` of the entity that the program belongs to; null if it is none.',
  Networks:
    'The addresses, and networks in CIDR notation, from which its keys are accepted; empty: from ' +
    'everywhere. An address is returned as a network of one.',
};

/** The fields of a program that administrators decide. */
export const programFields = describeFields(
  {
    Name: text({ max: lengths.name }),
    Role: text({ max: lengths.name }),
    Scope: z.enum(scopes),
    EntityId: longId().nullable().default(null),
    Networks: networks().default([]),
  },
  descriptions,
);
/**
 * The fields that a PUT replaces. It must name the networks: without them, a client that does
 * not know the field would let the keys in from everywhere.
 */
export const replacedFields = programFields.extend({
  Networks: networks().describe(descriptions.Networks),
});
export type ProgramFields = z.output<typeof programFields>;

export const programView = describeFields(
  {
    Id: longId(),
    Guid: guid(),
    Name: z.string(),
    Role: z.string(),
    Scope: z.enum(scopes),
    EntityId: longId().nullable(),
    Networks: z.array(z.string()),
    IsDisabled: z.boolean(),
    Keys: intCount(),
    LastUsedAt: timestamp().nullable(),
    CreatedAt: timestamp(),
    RoleId: longId(),
  },
  {
    ...descriptions,
    Id: 'The number of the program, which the service chooses. No user has the same.',
    Guid: 'The guid of the program, as `userGuid` of `/api/v1/auth/me` and `UserGuid` of the audit log name it.',
    IsDisabled: 'Whether its keys are refused.',
    Keys: 'The number of its keys that have neither ended nor been revoked.',
    LastUsedAt: 'The hour in which one of its keys was last used; null if none was.',
    CreatedAt: 'When the program was made.',
    RoleId: 'The `Id` of the role.',
  },
).meta({ title: 'Program' });
export type ProgramView = z.output<typeof programView>;

/** The fields that the name of the role, and the use and the number of keys, change. */
export const volatileProgramFields: readonly (keyof ProgramView)[] = ['Role', 'Keys', 'LastUsedAt'];

export const programTable = new TableStatements(Program, programView);

/** The conditions for the programs among the users of other conditions. */
export const isProgram: Condition = ['kind = ?', 'program'];

/** Selects one program, as the JSON text that `viewOf` reads. */
export function programById(tenantId: number, id: number): Statement {
  return programTable.selectJson([['tenant_id = ?', tenantId], isProgram, ['id = ?', id]]);
}

/** A key of a program, without the key itself. For reads only. */
const ProgramKeySchema = defineEntity({
  name: 'ProgramKey',
  tableName: 'program_keys',
  properties: {
    id: p.uuid().primary(),
    programId: p.bigint('number'),
    prefix: p.text(),
    madeBy: p.bigint('number').nullable(),
    createdAt: p.datetime(),
    expiresAt: p.datetime(),
    lastUsedAt: p.datetime().nullable(),
    revokedAt: p.datetime().nullable(),
  },
});
class ProgramKey extends ProgramKeySchema.class {}
ProgramKeySchema.setClass(ProgramKey);

export const keyExpiryDescription =
  `When the key ends: ${keyDays.default} days after it was made, or earlier or later as the request ` +
  `says, at most ${keyDays.max} days.`;

export const keyView = describeFields(
  {
    Id: guid(),
    ProgramId: longId(),
    Prefix: z.string(),
    MadeBy: longId().nullable(),
    CreatedAt: timestamp(),
    ExpiresAt: timestamp(),
    LastUsedAt: timestamp().nullable(),
    RevokedAt: timestamp().nullable(),
  },
  {
    Id: 'The id of the key, as `tokenId` of `/api/v1/auth/me` names it.',
    ProgramId: 'The `Id` of the program.',
    Prefix: 'The first characters of the key, by which people recognise it.',
    MadeBy: 'The number of the user who made it; null if the operator did.',
    CreatedAt: 'When it was made.',
    ExpiresAt: keyExpiryDescription,
    LastUsedAt: 'The hour in which it was last used; null if it was not.',
    RevokedAt: 'When it was revoked; null if it was not.',
  },
).meta({ title: 'ProgramKey' });
export type KeyView = z.output<typeof keyView>;

export const keyTable = new TableStatements(ProgramKey, keyView);

/** The conditions for the keys of a program, or for one of them. */
export function keyConditions(tenantId: number, programId: number, id?: string): Condition[] {
  return [
    ['tenant_id = ?', tenantId],
    ['program_id = ?', programId],
    ...(id === undefined ? [] : [['id = ?::uuid', id] as const]),
  ];
}
