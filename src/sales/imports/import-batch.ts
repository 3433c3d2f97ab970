import { setImmediate } from 'node:timers/promises';
import type { z } from 'zod';
import { readText } from '../../lib/http/request/csv.ts';
import { fieldNameOf } from '../../lib/http/request/field-error-of.ts';
import { normalText } from '../../lib/http/request/fields.ts';
import { InvalidFields, readFields } from '../../lib/http/request/read-fields.ts';
import { toIso } from '../../lib/postgres/column-types.ts';
import { databaseNow, type RowValues } from '../../lib/postgres/statement.ts';
import { camelCase, pascalCase, toRow } from '../../lib/runtime/casing.ts';
import type { FieldErrors } from '../../lib/runtime/field-error.ts';
import type { TenantTransaction } from '../../tenancy/connections/tenant-transaction.ts';
import { codeText } from '../resources/record.ts';
import {
  applyRules,
  resolveReferences,
  type UncheckedRecord,
  wantReferences,
} from '../resources/rest/check-record.ts';
import type { ReferredRecords } from '../resources/rest/references.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import { databaseErrors } from './database-errors.ts';
import { FilledCells } from './filled-cells.ts';
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
/** Records of others that are remembered: each takes some 200 bytes. */
const maxReferred = 10_000;

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
  /** The records of others that rows refer to, as far as they are known. */
  readonly referred: ReferredRecords;
}

/** The changes that the rows of a batch will make. */
interface Plan {
  readonly inserts: RowValues[];
  readonly updates: RowValues[];
  unchanged: number;
  readonly errors: ImportError[];
  refused: number;
  readonly filled: FilledCells;
}

/**
 * Applies rows by the rules of single changes: the contract of the resource, its rules, its
 * unique codes and references. Valid rows are written with one statement for new records
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
    batch.referred.clear(); // the locks have gone
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
  counts.filled.addAll(plan.filled);
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
  const { columns, resource, transaction, referred } = batch;

  if (referred.size > maxReferred) referred.clear();
  const plan: Plan = {
    inserts: [],
    updates: [],
    unchanged: 0,
    errors: [],
    refused: 0,
    filled: new FilledCells(),
  };
  const stored = await findStored(
    transaction,
    resource,
    columns,
    records.map(record => keyOf(columns, record)),
  );

  const turn = new Turn();
  const rows: (Draft | ImportError)[] = [];
  for (const record of records) {
    await turn.next();
    const misshapen = shapeError(columns, record);
    if (misshapen) {
      rows.push(misshapen);
      continue;
    }

    const draft = draftRow(batch, record, stored);
    rows.push(draft);
    if (draft.change === 'none') continue;
    if (draft.change === 'update') plan.filled.addRow(columns.texts, draft.before, draft.row);
    wantReferences(resource, draft, referred);
    wantTitles(batch, draft);
  }

  await referred.read(statement => transaction.query(statement));
  for (const row of rows) {
    await turn.next();
    if ('Line' in row) {
      plan.errors.push(row);
      plan.refused++;
    } else {
      finishRow(batch, row, plan);
    }
  }
  return plan;
}

/** Lets requests have their turn while many rows are checked. */
class Turn {
  #beganAt = performance.now();

  async next(): Promise<void> {
    if (performance.now() - this.#beganAt <= maxTurnMs) return;
    await setImmediate();
    this.#beganAt = performance.now();
  }
}

/** The text that identifies the record of a row; empty when the row has none. */
export function keyOf({ keyIndex }: Columns, { cells }: CsvRecord): string {
  const key = readText(cells[keyIndex] ?? '');
  if (key === '') return '';
  const parsed = codeText.safeParse(key);
  return parsed.success ? parsed.data : '';
}

/** A row whose references are not looked up yet. */
interface Draft extends UncheckedRecord {
  readonly record: CsvRecord;
  readonly titles: Record<string, string>;
  /** The change of its record, if the row has no error. */
  readonly change: 'insert' | 'update' | 'none';
  /** True if the row says that its record is marked as deleted. */
  readonly isMarked: boolean | undefined;
}

/** Reads a row by the contract of the resource, with all errors of its cells. */
function draftRow(batch: Batch, record: CsvRecord, stored: StoredRecords): Draft {
  const { columns, resource, order } = batch;
  const { mode } = order;
  const errors: FieldErrors = {};
  const titles: Record<string, string> = {};

  const body = bodyOf(columns, record.cells, { errors, titles });
  const key = keyOf(columns, record);
  const isMarked = isMarkedAsDeleted(columns, record, errors);
  const before = mode === 'upsert' || columns.keyField !== 'Id' ? stored.find(key) : undefined;
  const draft = { record, titles, errors, isMarked };

  const twice = secondRowError(batch, record);
  if (!before && isMarked === true && Object.keys(errors).length === 0) {
    Object.assign(errors, twice);
    return { ...draft, titles: {}, row: {}, before: {}, change: 'none' }; // no record to mark
  }

  if (!before || mode === 'create') {
    if (mode === 'upsert' && columns.keyField === 'Id' && key !== '') {
      errors.Id ??= [{ message: 'names no record', code: 'unknown_reference' }];
    }

    const row = toRow(readRow(resource.create, body, errors));
    addError(errors, twice ?? (before && taken(columns, before)));
    return { ...draft, row, before: {}, change: 'insert' };
  }

  const values = toRow(readRow(columns.contract, body, errors));
  // the stored spelling stays
  if (columns.keyField !== undefined) delete values[camelCase(columns.keyField)];
  for (const { reference } of columns.titles) {
    const isNamed = columns.fields.includes(pascalCase(reference)) || reference in titles;
    if (!isNamed) delete values[reference]; // an empty title leaves the reference as it is
  }

  const changes = Object.entries(values).filter(
    ([property, value]) => !isSame(value, before[property]),
  );
  // Refuses a row that is equal to a record that is marked as deleted, too: counted as
  // *Unchanged*, the record would seem to be there.
  const isGone = before.isDeleted === true && isMarked !== true;
  addError(errors, twice ?? (isGone ? taken(columns, before) : undefined));

  const row = { ...before, ...Object.fromEntries(changes) };
  return { ...draft, row, before, change: 'update' };
}

/** Reads the fields of a contract, and adds the errors of those that it refuses. */
function readRow(
  contract: z.ZodObject,
  body: Record<string, unknown>,
  errors: FieldErrors,
): Record<string, unknown> {
  try {
    return readFields(contract, body, errors);
  } catch (error) {
    if (!(error instanceof InvalidFields)) throw error;
    Object.assign(errors, error.errors);
    return error.valid;
  }
}

function addError(errors: FieldErrors, further: FieldErrors | undefined): void {
  for (const [field, list] of Object.entries(further ?? {})) errors[field] ??= list;
}

/** Completes a row with the records that it refers to, and adds it to a plan. */
function finishRow(batch: Batch, draft: Draft, plan: Plan): void {
  const { columns, resource } = batch;
  const { record, row, before, errors, change, isMarked } = draft;

  if (change !== 'none') {
    resolveReferences(resource, draft, batch.referred);
    addError(errors, titleErrors(batch, draft));
    addError(errors, fixedErrors(batch, draft));
  }

  const properties = Object.keys(resource.create.shape).map(camelCase);
  const changesMark =
    change === 'update' && isMarked !== undefined && isMarked !== before.isDeleted;
  const isChanged =
    change === 'insert' || properties.some(name => !isSame(row[name], before[name]));
  if (isChanged && change !== 'none') applyRules(resource, draft);
  if (change === 'update' && isChanged && before.isDeleted === true) {
    addError(errors, taken(columns, before));
  }

  if (Object.keys(errors).length > 0) {
    const placeOf = ({ Field }: RowError) => columns.fields.indexOf(fieldNameOf(Field));
    const inOrder = errorsOf(errors).sort((one, other) => placeOf(one) - placeOf(other));
    plan.errors.push(...inOrder.map(each => placeError(columns, record, each)));
    plan.refused++;
  } else if (change === 'insert') {
    plan.inserts.push(row);
  } else if (change === 'none' || (!isChanged && !changesMark)) {
    plan.unchanged++;
  } else {
    const changed = Object.fromEntries(
      [keyProperty(resource), ...properties].map(property => [property, row[property]]),
    );
    const marks = { isDeleted: isMarked, deletedAt: isMarked ? databaseNow : null };
    plan.updates.push(changesMark ? { ...changed, ...marks } : changed);
  }
}

/** Remembers the records whose titles the row has beside their keys. */
function wantTitles({ columns, referred }: Batch, { row, record, titles }: Draft): void {
  for (const { index, reference } of columns.titles) {
    const hasCell = (record.cells[index] ?? '').trim() !== '';
    const key = row[reference];
    if (hasCell && key && titles[reference] === undefined) {
      referred.want(reference, 'key', String(key));
    }
  }
}

/**
 * Returns the errors of titles that are not those of the records that the row refers to: the
 * import takes the key, and would drop another title in silence.
 */
function titleErrors({ columns, referred }: Batch, draft: Draft): FieldErrors {
  const { row, record, titles, errors } = draft;
  const found: FieldErrors = {};

  for (const { index, field, reference } of columns.titles) {
    const cell = normalText(readText(record.cells[index] ?? ''));
    const setter = pascalCase(reference);
    // A title by which the record was found is its title, in whatever letter case.
    if (cell === '' || errors[setter] || cell === titles[reference]) continue;

    const key = String(row[reference]);
    const [one] = [
      ...referred.find(reference, 'key', key),
      ...referred.find(reference, 'title', titles[reference]),
      ...referred.find(reference, 'default'),
    ].filter(each => String(each.key) === key);
    if (one && one.title?.toLowerCase() !== cell.toLowerCase()) {
      const message = `is not set by an import: ${setter} sets it, to ${one.title}`;
      found[field] = [{ message, code: 'not_applicable' }];
    }
  }
  return found;
}

/**
 * Returns the errors of fields that the service sets, if the row has another value than its
 * record. Only a file with the ids of this tenant has those of this record.
 */
function fixedErrors({ columns, order }: Batch, draft: Draft): FieldErrors {
  const { record, before, change, isMarked } = draft;
  const found: FieldErrors = {};
  if (order.ids !== 'own' || change !== 'update') return found;

  for (const index of columns.fixed) {
    const field = columns.fields[index] ?? '';
    const cell = readText(record.cells[index] ?? '').trim();
    const isMoved =
      field === 'DeletedAt' && isMarked !== undefined && isMarked !== before.isDeleted;
    if (cell === '' || isMoved || isSameText(cell, before[camelCase(field)])) continue;

    found[field] = [{ message: 'is set by the service, to another value', code: 'not_applicable' }];
  }
  return found;
}

/** True if a cell is the text of a stored value, as an export writes it. */
function isSameText(cell: string, stored: unknown): boolean {
  if (String(stored) === cell) return true;
  const time = typeof stored === 'string' ? Date.parse(toIso(stored)) : Number.NaN;
  return time === Date.parse(cell);
}

/**
 * Returns the error of a second row of one record. Otherwise the last row would win in silence,
 * and again with each import of the file.
 */
function secondRowError(
  { columns, order, firstLines }: Batch,
  record: CsvRecord,
): FieldErrors | undefined {
  const { keyField = '' } = columns;
  const key = keyOf(columns, record);
  const first = firstLines.get(key.toLowerCase());
  const isNamed = key !== '' && !(keyField === 'Id' && order.mode === 'create');
  if (!isNamed || first === undefined || first === record.line) return undefined;

  return { [keyField]: [{ message: `is on line ${first} already`, code: 'taken' }] };
}

/**
 * True if the row says that its record is marked as deleted; undefined when the file does not
 * say.
 * @param errors gets the error of another text
 */
function isMarkedAsDeleted(
  { fields }: Columns,
  { cells }: CsvRecord,
  errors: FieldErrors,
): boolean | undefined {
  const cell = cells[fields.indexOf('IsDeleted')]?.trim().toLowerCase();
  if (cell === undefined || cell === '') return undefined;
  if (cell === 'true' || cell === 'false') return cell === 'true';

  errors.IsDeleted = [{ message: 'must be true or false', code: 'wrong_type' }];
  return undefined;
}

function taken({ keyField = '' }: Columns, { isDeleted }: RowValues): FieldErrors {
  const message =
    isDeleted === true ? 'is taken by a record that is marked as deleted' : 'is taken';
  return { [keyField]: [{ message, code: 'taken' }] };
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

function errorsOf(errors: FieldErrors): RowError[] {
  return Object.entries(errors).flatMap(([field, list]) =>
    list.map(error => ({ Field: field, Code: error.code, Reason: error.message })),
  );
}
