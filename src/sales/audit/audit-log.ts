import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import type { ControlDatabase } from '../../control/database.ts';
import type { Permission } from '../../control/permissions.ts';
import { controlReads } from '../../control/tenant-queues.ts';
import { userNamesOf } from '../../control/visible-users.ts';
import {
  commaList,
  describeFields,
  guid,
  limit,
  longId,
  queryId,
  text,
  timestamp,
} from '../../lib/http/request/fields.ts';
import { listContract } from '../../lib/http/request/list-parameters/list-contract.ts';
import type { ListQuery } from '../../lib/http/request/list-parameters/list-query.ts';
import { Representation } from '../../lib/http/response/representation.ts';
import { pathId } from '../../lib/http/route.ts';
import { toIso } from '../../lib/postgres/column-types.ts';
import type { JsonFormat } from '../../lib/postgres/json-columns.ts';
import type { Condition } from '../../lib/postgres/statement.ts';
import { TableStatements } from '../../lib/postgres/table-statements.ts';
import { fieldProblem, problem } from '../../lib/problems.ts';
import { pascalCase } from '../../lib/runtime/casing.ts';
import type { Caller } from '../../tenancy/caller.ts';
import { defineRoute, permissionMissing, type TenantRoute } from '../../tenancy/define-route.ts';
import { readList } from '../../tenancy/lists/read-page.ts';
import { ofOwnEntity, ownEntityOf, selectOwnEntity } from '../../tenancy/own-entity.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { resources } from '../resources/index.ts';
import { resourceList } from '../resources/resource-names.ts';

/** The kinds of change of a record. */
export const changeActions = ['create', 'update', 'delete'] as const;
type Row = Record<string, unknown>;

const AuditEntrySchema = defineEntity({
  name: 'AuditEntry',
  tableName: 'audit_log',
  properties: {
    id: p.bigint('number').primary(),
    createdAt: p.datetime().defaultRaw('now()'),
    userId: p.bigint('number').nullable(),
    userGuid: p.uuid().nullable(),
    /**
     * The business entity that owns the record; a caller of scope `Self` sees only the entries
     * of their own entity.
     */
    entityId: p.bigint('number').nullable(),
    action: p.text().$type<(typeof changeActions)[number]>(),
    resource: p.text(),
    key: p.text().fieldName('record_key'),
    before: p.json().$type<Row>().nullable(),
    after: p.json().$type<Row>().nullable(),
    ipAddress: p.text().nullable(),
    traceId: p.text().nullable(),
    databaseUser: p.text(),
  },
});
/**
 * The record of one change. A trigger writes it in the transaction of the change; the service
 * only reads it.
 */
export class AuditEntry extends AuditEntrySchema.class {}
AuditEntrySchema.setClass(AuditEntry);

/** The resources whose records, and audit entries, are in the control database. */
const controlResources = [
  { name: 'User', path: '/api/v1/Users' },
  { name: 'Role', path: '/api/v1/Roles' },
  { name: 'Program', path: '/api/v1/Programs' },
  { name: 'ProgramKey' },
  { name: 'Factor' },
  { name: 'IdentityProvider', path: '/api/v1/IdentityProviders' },
  { name: 'Identity' },
  { name: 'SignInRule' },
];
const controlNames = controlResources.map(({ name }) => name);
const ofControl = `${controlNames
  .slice(0, -1)
  .map(name => `\`${name}\``)
  .join(', ')} and \`${controlNames.at(-1)}\``;
const namesOfControl = `${controlNames.slice(0, -1).join(', ')} or ${controlNames.at(-1)}`;
/**
 * The resources that requests may name: those whose changes have audit entries, and `Activity`,
 * whose records never change.
 */
const auditedResources = [
  ...resources,
  { name: 'PromotionUse' },
  { name: 'Activity' },
  { name: 'Webhook', path: '/api/v1/Webhooks' },
  ...controlResources,
];

const view = describeFields(
  {
    Id: longId(),
    CreatedAt: timestamp(),
    UserId: longId().nullable(),
    UserGuid: guid().nullable(),
    Action: z.enum(changeActions),
    Resource: z.string(),
    Key: z.string(),
    Before: z.record(z.string(), z.unknown()).nullable(),
    After: z.record(z.string(), z.unknown()).nullable(),
    IPAddress: z.string().nullable(),
    TraceId: z.string().nullable(),
  },
  {
    Id: 'The number of the entry: later entries have higher numbers.',
    CreatedAt:
      'When the change was made: the time at which its request began. An entry appears when ' +
      'that request has ended, so it may have an earlier time than one that you have read: to ' +
      'receive new changes, read `GET /api/v1/Changes`.',
    UserId: 'The number of the user who made the change; null for a change of the operator.',
    UserGuid: 'The guid of the user who made the change; null for a change of the operator.',
    Action: 'What was done with the record.',
    Resource: 'The name of the resource, such as `Country`.',
    Key: 'The id or the code of the record.',
    Before: 'The fields of the record before the change; null if it was created.',
    After: 'The fields of the record after the change; null if it was deleted.',
    IPAddress: 'The address that the request came from; null for a change of the operator.',
    TraceId:
      'The `X-Request-Id` of the request that made the change; null for a change of the operator.',
  },
).meta({ title: 'AuditEntry' });

const table = new TableStatements(AuditEntry, view);

const query = z.object({
  limit: limit(),
  resource: resourceList(auditedResources)
    .optional()
    .describe(
      'Return only entries of these resources, separated by commas, each by its name or by that ' +
        'of its path: `Country` or `Countries`.',
    )
    .meta(commaList),
  key: text({ max: 255 }).optional(),
  userId: queryId(),
});
const list = listContract({
  view,
  query,
  order: { Id: 'desc' },
  key: 'Id',
  search: ['Resource', 'Key'],
  choices: { Resource: auditedResources.map(({ name }) => name) },
  includes: ['etag', 'user'],
});

/**
 * The resources whose audit entries need a further permission: the one that their records need.
 */
const permissionOf = new Map<string, Permission>([
  ['User', 'users.read'],
  ['Role', 'users.read'],
  ['Program', 'users.read'],
  ['ProgramKey', 'users.read'],
  ['Factor', 'users.read'],
  ['IdentityProvider', 'users.read'],
  ['Identity', 'users.read'],
  ['SignInRule', 'users.read'],
  ['Webhook', 'settings.write'],
]);

const path = '/api/v1/AuditLog';

export function auditRoutes({ control }: { control: ControlDatabase }): TenantRoute[] {
  return [
    defineRoute({
      method: 'GET',
      path,
      access: 'full.read',
      tag: 'AuditLog',
      summary: 'The newest audit entries, of a resource, a record, a user, or all',
      description:
        'Every change of a record has one entry, written in the same transaction. `resource` is a name such as ' +
        `\`Country\`, \`key\` the id or code of a record. The entries of ${ofControl} ` +
        'are returned only when `resource`, or `filter[Resource]`, names nothing beside these, and ' +
        'need the permission `users.read` too. Those of ' +
        '`Webhook` need `settings.write`. An upgrade ' +
        'that fills columns which no response has writes one entry for all records of a resource: its `Key` is `*`, and ' +
        '`Before` and `After` are null.',
      query,
      list,
      response: z.array(view),
      handler: async ({ query: { limit, resource, key, userId }, list }, context) => {
        const named = namedResources(resource, list);
        requirePermissions(named, context.caller);

        const conditions = [
          ...(await visibleEntries(named, context)),
          resource && resourceCondition(resource),
          key === undefined ? undefined : (['record_key = ?', key] as const),
          userId === undefined ? undefined : (['user_id = ?', userId] as const),
        ];

        const reads = readsOf(named, control, context);
        const userNames = userNamesOf(control, context, context.caller);
        const source = {
          table,
          conditions,
          reads,
          json: entryFormat,
          toResponse: entryText,
          userNames,
        };
        return readList(list, source, { orderBy: { id: 'desc' }, limit });
      },
    }),

    defineRoute({
      method: 'GET',
      path: `${path}/:id`,
      access: 'full.read',
      cache: 'revalidate',
      tag: 'AuditLog',
      summary: 'One audit entry by its id',
      description:
        `The entries of ${ofControl} have numbers of their own: one of these is returned ` +
        'only when `resource` names one of these.',
      query: query.pick({ resource: true }),
      response: view,
      handler: async ({ params, query: { resource } }, context) => {
        const named = namedResources(resource, undefined);
        requirePermissions(named, context.caller);

        const id = pathId(params.id, Number.MAX_SAFE_INTEGER);
        const conditions: (Condition | undefined)[] = [
          ['id = ?', id],
          ...(await visibleEntries(named, context)),
          resource && resourceCondition(resource),
        ];
        const reads = readsOf(named, control, context);
        const [row] = id ? await reads.read(table.selectRecord(conditions)) : [];
        if (!row?.json) throw problem('not_found');

        return Representation.ofText(entryText(row.json));
      },
    }),
  ];
}

/** The resources that a request names. */
interface NamedResources {
  /** Names in `resource` and in the filter of the same field. */
  readonly names: readonly string[];
  /** True if their entries are in the control database. */
  readonly areOfControl: boolean;
}

/**
 * Returns the resources that a request names, by the parameter `resource` or by a filter. Both
 * decide from which database the entries are read.
 * @throws {Problem} `validation_failed` when they are in both databases
 */
function namedResources(
  resource: readonly string[] | undefined,
  list: ListQuery | undefined,
): NamedResources {
  const filtered = list?.filters.find(({ field }) => field.name === 'Resource')?.values;
  const deciding = resource ?? filtered ?? [];
  const isOfControl = (name: string) => controlResources.some(each => each.name === name);
  const areOfControl = deciding.length > 0 && deciding.every(isOfControl);

  if (!areOfControl && deciding.some(isOfControl)) {
    throw fieldProblem(
      resource ? 'resource' : 'filter[Resource]',
      `cannot name ${namesOfControl} beside other resources: ask for them in a request of their own`,
      'not_allowed',
    );
  }
  return { names: [...(resource ?? []), ...(filtered ?? [])], areOfControl };
}

/** @throws {Problem} `forbidden` when a named resource needs a permission that is missing */
function requirePermissions({ names }: NamedResources, caller: Caller): void {
  for (const name of names) {
    const permission = permissionOf.get(name);
    if (permission && !caller.permissions.has(permission)) throw permissionMissing(permission);
  }
}

/** Returns the conditions for the entries that the caller of a request may see. */
async function visibleEntries(
  { areOfControl }: NamedResources,
  context: RequestContext,
): Promise<(Condition | undefined)[]> {
  const { caller, tenant } = context;
  const own = ownEntityOf(caller);
  // The control database has no entities: the tenant's database says whether it has this one.
  const isOwn = areOfControl && own && (await context.read(selectOwnEntity(own))).length > 0;

  return [
    areOfControl ? ['tenant_id = ?', tenant.id] : undefined,
    own &&
      (areOfControl
        ? ['entity_id = ? and entity_since = ?', isOwn ? own.id : 0, own.since]
        : ofOwnEntity('entity_id', own)),
    caller.permissions.has('settings.write') ? undefined : ['resource <> ?', 'Webhook'],
  ];
}

function resourceCondition(names: readonly string[]): Condition {
  return names.length === 1 ? ['resource = ?', names[0]] : ['resource = any (?)', names];
}

function readsOf(
  { areOfControl }: NamedResources,
  control: ControlDatabase,
  context: RequestContext,
) {
  return areOfControl ? controlReads(control, context) : context;
}

/** `entryText` by columns, so that only the audited rows are parsed. */
const entryFormat: JsonFormat = { isOneRow: true, writers: { Before: rowText, After: rowText } };

function rowText(row: string): string {
  return JSON.stringify(toFields(JSON.parse(row)));
}

function entryText(json: string): string {
  const entry: Row & Record<'Before' | 'After', Row | null> = JSON.parse(json);
  entry.Before = toFields(entry.Before);
  entry.After = toFields(entry.After);
  return JSON.stringify(entry);
}

/**
 * The columns of a row as fields of the API: names in PascalCase, timestamps in UTC to the
 * millisecond.
 */
function toFields(row: Row | null): Row | null {
  if (!row) return null;
  const fields: Row = {};
  for (const column in row) {
    const { name, isTimestamp } = fieldOf(column);
    const value = row[column];
    fields[name] = isTimestamp && typeof value === 'string' ? toTimestamp(value) : value;
  }
  return fields;
}

/**
 * The field of each column. The map is bounded, because only audited tables have columns in it.
 */
const fieldsOfColumns = new Map<string, { name: string; isTimestamp: boolean }>();

function fieldOf(column: string) {
  let field = fieldsOfColumns.get(column);
  if (field === undefined) {
    field = {
      name: column.split('_').map(pascalCase).join(''),
      isTimestamp: column.endsWith('_at'),
    };
    fieldsOfColumns.set(column, field);
  }
  return field;
}

/** Converts a timestamp of an audited row, in any time zone, to UTC, to the millisecond. */
export function toTimestamp(value: string): string {
  const timestamp = toIso(value);
  if (timestamp !== value) return timestamp;
  const time = Date.parse(value);
  return Number.isNaN(time) ? value : new Date(time).toISOString();
}
