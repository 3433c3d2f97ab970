import type { ListQuery } from '../../../lib/http/request/list-parameters/list-query.ts';
import type { Precondition, Representation } from '../../../lib/http/response/representation.ts';
import { pathId, type RouteInput, type ValidFields } from '../../../lib/http/route.ts';
import { sqlState } from '../../../lib/postgres/database-error.ts';
import type { Condition, RowValues, Statement } from '../../../lib/postgres/statement.ts';
import type { JsonRow } from '../../../lib/postgres/table-reads.ts';
import { type Problem, problem, thrownErrors } from '../../../lib/problems.ts';
import { camelCase, pascalCase, snakeCase, toRow } from '../../../lib/runtime/casing.ts';
import type { FieldErrors } from '../../../lib/runtime/field-error.ts';
import type { Caller } from '../../../tenancy/caller.ts';
import type { Prepare } from '../../../tenancy/connections/tenant-driver.ts';
import type { TenantTransaction } from '../../../tenancy/connections/tenant-transaction.ts';
import { permissionMissing } from '../../../tenancy/define-route.ts';
import { ofOwnEntity, ownEntityOf } from '../../../tenancy/own-entity.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import { requireScopeAll } from '../../../tenancy/require-manager.ts';
import { codeCondition } from '../record.ts';
import { requireValid, takenBy, type UncheckedRecord } from './check-record.ts';
import { forEntity, idsShownTo } from './named-entities.ts';
import type { ResourceDefinition } from './resource-definition.ts';

export type PathParams = RouteInput<never>['params'];

/**
 * Conditions for the records that a caller may see, without deleted ones unless the query
 * includes them.
 */
export function recordsVisibleTo(
  { softDelete, scopedBy, namesEntities }: ResourceDefinition,
  caller: Caller,
  query: { includeDeleted?: boolean } = {},
): (Condition | undefined)[] {
  const own = ownEntityOf(caller);
  return [
    softDelete && !query.includeDeleted ? ['not is_deleted'] : undefined,
    scopedBy && own ? ofOwnEntity(snakeCase(scopedBy), own) : undefined,
    namesEntities && own ? forEntity(snakeCase(namesEntities), own) : undefined,
  ];
}

/**
 * Conditions for the records of a list that its filters need beside their own. A filter on the
 * mark of deletion decides alone which records are left out. Of the ids that a record names, a
 * caller of scope `Self` reads the own one alone, so a filter by others finds nothing.
 */
export function listedRecords(
  resource: ResourceDefinition,
  caller: Caller,
  query: { includeDeleted?: boolean },
  { filters }: Pick<ListQuery, 'filters'>,
): (Condition | undefined)[] {
  const isMarkFiltered = filters.some(({ field }) =>
    ['IsDeleted', 'DeletedAt'].includes(field.name),
  );
  const named = resource.namesEntities && pascalCase(resource.namesEntities);
  const isOfOthers = filters.some(
    ({ field, values }) =>
      field.name === named && caller.scope === 'Self' && !values.includes(String(caller.entityId)),
  );

  return [
    ...recordsVisibleTo(resource, caller, {
      includeDeleted: query.includeDeleted === true || isMarkFiltered,
    }),
    isOfOthers ? ['false'] : undefined,
  ];
}

/** @throws {Problem} `forbidden` when a caller of scope `Self` lacks `access.readOfSelf` */
export function requireReadable({ access }: ResourceDefinition, caller: Caller): void {
  const { readOfSelf } = access;
  if (readOfSelf && caller.scope === 'Self' && !caller.permissions.has(readOfSelf)) {
    throw permissionMissing(readOfSelf);
  }
}

/**
 * Returns a function that makes the JSON text of a record what the caller may read of it;
 * undefined when that is the whole record.
 */
export function ownText(
  { namesEntities }: ResourceDefinition,
  { scope, entityId }: Caller,
): ((json: string) => string) | undefined {
  if (namesEntities === undefined || scope === 'All') return undefined;
  const field = pascalCase(namesEntities);

  return json => {
    const record: Record<string, readonly number[]> = JSON.parse(json);
    return JSON.stringify({
      ...record,
      [field]: idsShownTo(record[field] ?? [], entityId ?? 0),
    });
  };
}

/**
 * The condition for the record that a path or a body names; undefined when no record can have
 * that key.
 */
export function keyCondition(
  { key }: ResourceDefinition,
  params: PathParams,
  body: Record<string, unknown> = {},
): Condition | undefined {
  if ('code' in key) return codeCondition(key.code, params.code ?? body[pascalCase(key.code)]);
  const id = pathId(params.id, key.id);
  return id === undefined ? undefined : ['id = ?', id];
}

/**
 * Returns the response of a resource: from the response cache if the resource is cached,
 * otherwise as `toResponse` makes it of the selected rows, which have exactly the fields of the
 * view.
 *
 * @param cacheKey names the response among those of the resource
 * @param select selects a row for each record, if the resource names entities
 */
export async function respondWith(
  resource: ResourceDefinition,
  context: RequestContext,
  cacheKey: string,
  select: () => Statement<JsonRow>,
  toResponse: (rows: JsonRow[]) => Representation | Promise<Representation>,
): Promise<Representation> {
  const toOwn = ownText(resource, context.caller);
  if (resource.isCached && !toOwn) {
    return context.cached(resource.name, cacheKey, select, toResponse);
  }

  const rows = await context.read(select());
  return toResponse(toOwn ? rows.map(({ json }) => ({ json: toOwn(json) })) : rows);
}

/**
 * Runs a change in a transaction and invalidates the cached responses. Returns the rows of the
 * statement.
 * @param body the fields that the client sent, one of which may be a code that another record
 *   has
 * @throws {Problem} `duplicate`, which names the field of the code
 */
export async function writeRecord(
  resource: ResourceDefinition,
  context: RequestContext,
  change: Statement | Prepare,
  body: Record<string, unknown> = {},
): Promise<RowValues[]> {
  try {
    return await context.write(change, resource.isCached ? resource.name : undefined);
  } catch (error) {
    if (sqlState(error) !== uniqueViolation || !resource.unique) throw error;
    throw await duplicateProblem(resource, context, body, error);
  }
}

/**
 * Locks the record of a change until its transaction ends, and returns all its properties. Runs
 * in `prepare` of `writeRecord`, before the change is announced, so that a change of a missing
 * record invalidates nothing.
 * @throws {Problem} `onMissing` when there is no such record; `precondition_failed`
 */
export async function lockRecord<Row extends object = RowValues>(
  { table, onMissing }: Pick<ResourceDefinition, 'table' | 'onMissing'>,
  transaction: TenantTransaction,
  conditions: (Condition | undefined)[],
  precondition?: Precondition,
): Promise<Row> {
  const [record] = await transaction.query(table.selectForUpdate<Row>(conditions));
  if (!record) throw problem(onMissing);
  if (precondition) {
    const [viewed] = await transaction.query(table.select(conditions));
    precondition(viewed);
  }
  return record;
}

const uniqueViolation = '23505';

async function duplicateProblem(
  { table, unique = '', softDelete }: ResourceDefinition,
  context: RequestContext,
  body: Record<string, unknown>,
  cause: unknown,
): Promise<Problem> {
  const condition = softDelete ? codeCondition(unique, body[pascalCase(unique)]) : undefined;
  const [taker] = condition ? await context.read(table.select([condition])) : [];

  return problem('duplicate', {
    ...(taker?.IsDeleted === true
      ? { detail: 'The record with this code is marked as deleted. It can be undeleted.' }
      : {}),
    errors: takenBy(unique, taker),
    cause,
  });
}

/**
 * Changes the fields of one record that a body has, and returns the record. The path names the
 * record, or a code in the body.
 * @throws {Problem} `onMissing`, `precondition_failed`, `duplicate`, and those of `requireValid`
 */
export async function updateRecord(
  resource: ResourceDefinition,
  {
    body,
    params,
    precondition,
  }: Pick<RouteInput<Record<string, unknown>>, 'body' | 'params' | 'precondition'>,
  context: RequestContext,
): Promise<RowValues | undefined> {
  const properties = Object.keys(resource.create.shape).map(camelCase);
  const [updated] = await writeRecord(
    resource,
    context,
    async transaction => {
      const change = { body, params, precondition, errors: {} };
      const { record, conditions } = await changedRecord(resource, change, context, transaction);
      await requireValid(resource, record, statement => transaction.query(statement));
      // always the same columns: one prepared statement
      return resource.table.update(pick(record.row, properties), conditions);
    },
    body,
  );

  return updated;
}

type Change = ValidFields & Pick<RouteInput<never>, 'precondition'>;

/** Locks the record that a path or a body names, and returns it with the fields of the body. */
async function changedRecord(
  resource: ResourceDefinition,
  { body, params, precondition, errors }: Change,
  { caller }: RequestContext,
  transaction: TenantTransaction,
): Promise<{ record: UncheckedRecord; conditions: (Condition | undefined)[] }> {
  const { key, onMissing, namesEntities } = resource;
  if (namesEntities) requireScopeAll(caller);

  const condition = keyCondition(resource, params, body);
  if (!condition) throw problem(onMissing);
  const conditions = [condition, ...recordsVisibleTo(resource, caller)];
  const before = await lockRecord(resource, transaction, conditions, precondition);

  const changes = toRow(body);
  if ('code' in key) delete changes[key.code]; // the stored spelling stays
  return { record: { row: { ...before, ...changes }, before, errors: { ...errors } }, conditions };
}

/** Returns all errors of a change whose body the contract refuses; changes nothing. */
export function errorsOfChange(
  resource: ResourceDefinition,
  fields: ValidFields,
  context: RequestContext,
): Promise<FieldErrors> {
  return errorsOf(resource, context, async transaction => {
    const { record } = await changedRecord(resource, fields, context, transaction);
    return record;
  });
}

/** Returns all errors of a record that the contract refuses, and that is not made. */
export function errorsOfNew(
  resource: ResourceDefinition,
  { body, errors }: ValidFields,
  context: RequestContext,
): Promise<FieldErrors> {
  return errorsOf(resource, context, async () => ({
    row: toRow(body),
    before: {},
    errors: { ...errors },
  }));
}

async function errorsOf(
  resource: ResourceDefinition,
  context: RequestContext,
  find: (transaction: TenantTransaction) => Promise<UncheckedRecord>,
): Promise<FieldErrors> {
  const check: Prepare = async transaction => {
    const record = await find(transaction);
    await requireValid(resource, record, statement => transaction.query(statement));
    throw problem('validation_failed', { errors: record.errors });
  };

  return thrownErrors(() => context.write(check, undefined, false));
}

function pick(row: RowValues, properties: string[]): RowValues {
  return Object.fromEntries(properties.map(property => [property, row[property]]));
}
