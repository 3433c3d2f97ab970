import { setImmediate } from 'node:timers/promises';
import { fieldProblem, Problem, problems } from '../../lib/errors.ts';
import { readText } from '../../lib/http/csv.ts';
import { readFields } from '../../lib/http/read-fields.ts';
import { toIso } from '../../lib/postgres/column-types.ts';
import { databaseNow, type RowValues } from '../../lib/postgres/statement.ts';
import { camelCase, toRow } from '../../lib/runtime/casing.ts';
import type { TenantTransaction } from '../../tenancy/connections/tenant-transaction.ts';
import { codeText } from '../resources/record.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import { databaseErrors } from './database-errors.ts';
import { bodyOf, type Columns, placeError, shapeError } from './import-columns.ts';
import type { ImportCounts, ImportError, ImportOrder, RowError } from './import-report.ts';
import type { CsvRecord } from './read-csv.ts';
import { findStored, type StoredRecords } from './stored-records.ts';

const maxErrors = 1_000;
/**
 * The time for which rows are checked before requests have their turn: the cells of a batch can
 * take 50 ms.
 */
const maxTurnMs = 2;

interface Batch {
  readonly transaction: TenantTransaction;
  readonly resource: ResourceDefinition;
  readonly columns: Columns;
  readonly order: ImportOrder;
  readonly counts: ImportCounts;
  /**
   * The line on which the file first names each record, by the key of the record (`keyOf`) in
   * lower case.
   */
  readonly firstLines: ReadonlyMap<string, number>;
}

/** The changes that the rows of a batch will make. */
interface Plan {
  readonly inserts: RowValues[];
  readonly updates: RowValues[];
  unchanged: number;
  readonly errors: ImportError[];
  refused: number;
}

/**
 * Applies rows by the rules of single changes: the contract of the resource, its `validate`,
 * its unique codes and references. Valid rows are written with one statement for new records
 * and one for changed ones. When the database refuses a statement, its two halves are tried,
 * down to the row that is refused.
 * @throws when the database fails, or the table may not grow
 */
export async function applyBatch(batch: Batch, records: readonly CsvRecord[]): Promise<void> {
  const { transaction, counts } = batch;
  await transaction.query(savepoint('savepoint batch'));

  let plan: Plan;
  try {
    plan = await planRows(batch, records);
    for (const rows of sameProperties(plan.inserts)) {
      await transaction.query(batch.resource.table.insertMany(rows));
    }
    for (const rows of sameProperties(plan.updates)) {
      await transaction.query(batch.resource.table.updateMany(rows, keyProperty(batch.resource)));
    }
  } catch (error) {
    await transaction.query(savepoint('rollback to savepoint batch'));
    await transaction.query(savepoint('release savepoint batch'));
    const errors = databaseErrors(error, batch.resource);

    if (records.length > 1) {
      const middle = Math.ceil(records.length / 2);
      await applyBatch(batch, records.slice(0, middle));
      return applyBatch(batch, records.slice(middle));
    }

    const placed = records.flatMap(record =>
      errors.map(each => placeError(batch.columns, record, each)),
    );
    return refuse(counts, placed);
  }

  await transaction.query(savepoint('release savepoint batch'));
  counts.created += plan.inserts.length;
  counts.updated += plan.updates.length;
  counts.unchanged += plan.unchanged;
  counts.refused += plan.refused;
  addErrors(counts, plan.errors);
}

const savepoint = (sql: string) => ({ name: sql.replaceAll(' ', '_'), text: sql, values: [] });

/** Counts a refused row, and keeps its errors while there are fewer than 1,000. */
export function refuse(counts: ImportCounts, errors: readonly ImportError[]): void {
  counts.refused++;
  addErrors(counts, errors);
}

/** Keeps errors while there are fewer than 1,000. */
export function addErrors(counts: ImportCounts, errors: Iterable<ImportError>): void {
  for (const error of errors) {
    if (counts.errors.length >= maxErrors) return;
    counts.errors.push(error);
  }
}

async function planRows(batch: Batch, records: readonly CsvRecord[]): Promise<Plan> {
  const { columns, resource, transaction } = batch;

  const plan: Plan = { inserts: [], updates: [], unchanged: 0, errors: [], refused: 0 };
  const stored = await findStored(
    transaction,
    resource,
    columns,
    records.map(record => keyOf(columns, record)),
  );

  let turnBeganAt = performance.now();
  for (const record of records) {
    if (performance.now() - turnBeganAt > maxTurnMs) {
      await setImmediate();
      turnBeganAt = performance.now();
    }

    const misshapen = shapeError(columns, record);
    if (misshapen) {
      plan.errors.push(misshapen);
      plan.refused++;
      continue;
    }

    try {
      await planRow(batch, record, stored, plan);
    } catch (error) {
      if (!(error instanceof Problem) || error.status >= 500) throw error;
      plan.errors.push(...errorsOf(error).map(each => placeError(columns, record, each)));
      plan.refused++;
    }
  }
  return plan;
}

/** The text that identifies the record of a row; empty when the row has none. */
export function keyOf({ keyIndex }: Columns, { cells }: CsvRecord): string {
  const key = readText(cells[keyIndex] ?? '');
  if (key === '') return '';
  const parsed = codeText.safeParse(key);
  return parsed.success ? parsed.data : '';
}

async function planRow(
  batch: Batch,
  record: CsvRecord,
  stored: StoredRecords,
  plan: Plan,
): Promise<void> {
  const { columns, resource, order, transaction } = batch;
  const { create, validate } = resource;

  const body = bodyOf(columns, record.cells);
  const key = keyOf(columns, record);
  const isMarked = isMarkedAsDeleted(columns, record);
  const before =
    order.mode === 'upsert' || columns.keyField !== 'Id' ? stored.find(key) : undefined;

  if (!before) {
    if (order.mode === 'upsert' && columns.keyField === 'Id' && key !== '') {
      throw fieldProblem('Id', 'names no record', 'unknown_reference');
    }

    if (isMarked === true) {
      requireOnce(batch, record);
      plan.unchanged++; // there is no record to mark
      return;
    }

    const row = toRow(readFields(create, body));
    await validate?.(row, transaction.em, {});
    requireOnce(batch, record);
    plan.inserts.push(row);
    return;
  }

  // Refuses a row that is equal to a record that is marked as deleted, too: counted as
  // *Unchanged*, the record would seem to be there.
  if (order.mode === 'create' || (before.isDeleted === true && isMarked !== true)) {
    requireOnce(batch, record);
    throw taken(columns, before);
  }

  const changed = await changedRow(batch, body, before, isMarked);
  requireOnce(batch, record);
  if (!changed) plan.unchanged++;
  else if (before.isDeleted === true) throw taken(columns, before);
  else plan.updates.push(changed);
}

/**
 * Refuses a second row of one record. Otherwise the last row would win in silence, and again
 * with each import of the file.
 */
function requireOnce({ columns, order, firstLines }: Batch, record: CsvRecord): void {
  const { keyField = '' } = columns;
  const first = firstLines.get(keyOf(columns, record).toLowerCase());
  const isNamed = keyOf(columns, record) !== '' && !(keyField === 'Id' && order.mode === 'create');
  if (!isNamed || first === undefined || first === record.line) return;

  throw fieldProblem(keyField, `is on line ${first} already`, 'taken');
}

/**
 * True if the row says that its record is marked as deleted; undefined when the file does not
 * say.
 */
function isMarkedAsDeleted({ fields }: Columns, { cells }: CsvRecord): boolean | undefined {
  const cell = cells[fields.indexOf('IsDeleted')]?.trim().toLowerCase();
  if (cell === undefined || cell === '') return undefined;
  if (cell === 'true' || cell === 'false') return cell === 'true';
  throw fieldProblem('IsDeleted', 'must be true or false', 'wrong_type');
}

function taken({ keyField = '' }: Columns, { isDeleted }: RowValues): Problem {
  const message =
    isDeleted === true ? 'is taken by a record that is marked as deleted' : 'is taken';
  return fieldProblem(keyField, message, 'taken');
}

/**
 * The values of a stored record after the change that a row asks for; undefined when the row
 * changes nothing.
 */
async function changedRow(
  { columns, resource, transaction }: Batch,
  body: Record<string, unknown>,
  before: RowValues,
  isMarked: boolean | undefined,
): Promise<RowValues | undefined> {
  const contract = resource.update ?? resource.create;
  const present = Object.keys(contract.shape).filter(field => columns.fields.includes(field));
  const picked = contract.pick(Object.fromEntries(present.map(field => [field, true])) as never);
  const values = toRow(readFields(picked, body));
  // the stored spelling stays
  if (columns.keyField !== undefined) delete values[camelCase(columns.keyField)];
  const changes = Object.entries(values).filter(
    ([property, value]) => !isSame(value, before[property]),
  );
  const changesMark = isMarked !== undefined && isMarked !== before.isDeleted;
  if (changes.length === 0 && !changesMark) return undefined;
  const row: RowValues = { ...before, ...Object.fromEntries(changes) };
  await resource.validate?.(row, transaction.em, before);
  const properties = [keyProperty(resource), ...Object.keys(contract.shape).map(camelCase)];
  const changed: RowValues = Object.fromEntries(
    properties.map(property => [property, row[property]]),
  );

  return changesMark
    ? { ...changed, isDeleted: isMarked, deletedAt: isMarked ? databaseNow : null }
    : changed;
}

/** True when the stored value is the one that an export of it would give back. */
function isSame(value: unknown, stored: unknown): boolean {
  if (value instanceof Date) {
    return typeof stored === 'string' && new Date(toIso(stored)).getTime() === value.getTime();
  }
  if (Array.isArray(value)) return JSON.stringify(value) === JSON.stringify(stored);
  if (value === null) return stored === null || stored === '';
  return value === stored;
}

function keyProperty({ key }: ResourceDefinition): string {
  return 'id' in key ? 'id' : key.code;
}

function* sameProperties(rows: readonly RowValues[]): Generator<RowValues[]> {
  yield* Map.groupBy(rows, row => Object.keys(row).join()).values();
}

function errorsOf({ errors, code, detail }: Problem): RowError[] {
  if (!errors) return [{ Field: '', Code: code, Reason: detail ?? problems[code].title }];

  return Object.entries(errors).flatMap(([field, list]) =>
    list.map(error => ({ Field: field, Code: error.code, Reason: error.message })),
  );
}
