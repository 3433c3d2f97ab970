import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { pascalCase } from '../casing.ts';
import type { ControlDatabase } from '../control/database.ts';
import { queryList } from '../control/tenant-turns.ts';
import { guid, limit, longId, queryId, text, timestamp } from '../http/fields.ts';
import { listContract } from '../http/lists/list-contract.ts';
import { Representation } from '../http/representation.ts';
import { readPage } from '../lists/read-page.ts';
import { type Condition, type Statement, TableStatements } from '../postgres/table-statements.ts';
import type { Caller } from '../tenancy/caller.ts';
import { defineRoute, permissionMissing, type TenantRoute } from '../tenancy/define-route.ts';

const actions = ['create', 'update', 'delete'] as const;
type Row = Record<string, unknown>;

const AuditEntrySchema = defineEntity({
  name: 'AuditEntry',
  tableName: 'audit_log',
  properties: {
    id: p.bigint('number').primary(),
    createdAt: p.datetime().defaultRaw('now()'),
    userId: p.bigint('number').nullable(),
    userGuid: p.uuid().nullable(),
    /** The business entity that owns the record; a reader of scope `Self` sees only the entries of its own. */
    entityId: p.bigint('number').nullable(),
    action: p.text().$type<(typeof actions)[number]>(),
    resource: p.text(),
    key: p.text().fieldName('record_key'),
    before: p.json().$type<Row>().nullable(),
    after: p.json().$type<Row>().nullable(),
    ipAddress: p.text().nullable(),
    traceId: p.text().nullable(),
    databaseUser: p.text(),
  },
});
/** The record of one change. A trigger writes it in the transaction of the change; the service only reads it. */
export class AuditEntry extends AuditEntrySchema.class {}
AuditEntrySchema.setClass(AuditEntry);

const view = z
  .object({
    Id: longId(),
    CreatedAt: timestamp(),
    UserId: longId().nullable(),
    UserGuid: guid().nullable(),
    Action: z.enum(actions),
    Resource: z.string(),
    Key: z.string(),
    Before: z.record(z.string(), z.unknown()).nullable(),
    After: z.record(z.string(), z.unknown()).nullable(),
    IPAddress: z.string().nullable(),
    TraceId: z.string().nullable(),
  })
  .meta({ title: 'AuditEntry' });

const table = new TableStatements(AuditEntry, view);
const name = text({ max: 255 }).optional();
const query = z.object({ limit: limit(), resource: name, key: name, userId: queryId() });
const list = listContract({ view, query, order: { Id: 'desc' }, key: 'Id', search: ['Resource', 'Key'] });

/** The resources whose records, and audit entries, are in the control database. */
const controlResources = ['User', 'Role'];

export function auditRoutes({ control }: { control: ControlDatabase }): TenantRoute[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/api/v1/AuditLog',
      access: 'full.read',
      tag: 'AuditLog',
      summary: 'The newest audit entries, of a resource, a record, a user, or all',
      description:
        'Every change of a record has one entry, written in the same transaction. `resource` is a name such as ' +
        '`Country`, `key` the id or code of a record. The entries of `User` and `Role` are returned only when `resource` ' +
        'names one of them, and need the permission `users.read` too.',
      query,
      list,
      response: z.array(view),
      handler: async ({ query: { limit, resource, key, userId }, list }, context) => {
        const { caller, tenant } = context;
        const isControl = resource !== undefined && controlResources.includes(resource);
        if (isControl) requireUsersRead(caller);
        const conditions: (Condition | undefined)[] = [
          isControl ? ['tenant_id = ?', tenant.id] : undefined,
          caller.scope === 'Self' ? ['entity_id = ?', caller.entityId ?? 0] : undefined,
          resource === undefined ? undefined : ['resource = ?', resource],
          key === undefined ? undefined : ['record_key = ?', key],
          userId === undefined ? undefined : ['user_id = ?', userId],
        ];
        const read = (statement: Statement) =>
          isControl ? queryList(control, context, statement) : context.read(statement);
        if (list) return (await readPage(list, { table, conditions, read, toResponse: entryText })) as never;
        const rows = await read(table.select(conditions, { orderBy: { id: 'desc' }, limit }));
        return (await Representation.ofList(entriesOf(rows))) as never;
      },
    }),
  ];
}

/** @throws {Problem} `forbidden` for a caller who may not read the users themselves */
function requireUsersRead({ permissions }: Caller): void {
  if (!permissions.has('users.read')) throw permissionMissing('users.read');
}

/** The entries of a response, each as JSON text, made one at a time: a page may have 1,000 entries of 32 KB. */
function* entriesOf(rows: Row[]): Iterable<string> {
  for (const row of rows) yield entryOf(row);
}

function entryText(json: string): string {
  return entryOf(JSON.parse(json));
}

function entryOf(row: Row): string {
  const { Before, After, CreatedAt } = row as { Before: Row | null; After: Row | null; CreatedAt: string };
  // The sessions of the control database may have another time zone than UTC.
  const createdAt = toFieldValue('created_at', CreatedAt);
  return JSON.stringify({ ...row, CreatedAt: createdAt, Before: toFields(Before), After: toFields(After) });
}

/** The columns of a row as fields of the API: names in PascalCase, timestamps in UTC to the millisecond. */
function toFields(row: Row | null | undefined): Row | null {
  if (!row) return null;
  return Object.fromEntries(
    Object.entries(row).map(([column, value]) => [
      column.split('_').map(pascalCase).join(''),
      toFieldValue(column, value),
    ]),
  );
}

function toFieldValue(column: string, value: unknown): unknown {
  if (!column.endsWith('_at') || typeof value !== 'string' || Number.isNaN(Date.parse(value))) return value;
  return new Date(value).toISOString();
}
