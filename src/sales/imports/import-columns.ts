import { z } from 'zod';
import { fieldProblem } from '../../lib/errors.ts';
import { readText } from '../../lib/http/csv.ts';
import { camelCase, pascalCase } from '../../lib/runtime/casing.ts';
import { inexactNumber, type ReadNumber, readDecimal } from '../../lib/runtime/exact-number.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import { fileError, type ImportError, type RowError } from './import-report.ts';
import type { CsvRecord } from './read-csv.ts';

/** The way in which the text of a cell becomes the JSON value of its field. */
type Kind = 'text' | 'number' | 'boolean' | 'numbers';

interface Column {
  readonly field: string;
  readonly kind: Kind;
  readonly isNullable: boolean;
}

/**
 * The columns of a file. A column of a field that the service sets is undefined: its cells are
 * ignored.
 */
export interface Columns {
  /**
   * The fields up to the last column with a name; '' for a column without one, whose cells must
   * be empty.
   */
  readonly fields: readonly string[];
  readonly writable: readonly (Column | undefined)[];
  /** The position of the column that identifies a record for `mode=upsert`. */
  readonly keyIndex: number;
  /**
   * The field of that column: the unique code, else `Id`; undefined when the file has neither.
   */
  readonly keyField: string | undefined;
  /**
   * True where `1,5` is a number: spreadsheets separate by semicolons or tabs where the comma
   * is in numbers.
   */
  readonly hasDecimalComma: boolean;
}

/**
 * Returns the columns with ids of records, which have a meaning only in the tenant that gave
 * them.
 */
export function idFields(
  { references = [] }: ResourceDefinition,
  { fields, keyField }: Columns,
  mode: 'create' | 'upsert',
): string[] {
  const referring = new Set(references.map(pascalCase));
  const isId = (field: string) =>
    referring.has(field) || (field === 'Id' && keyField === 'Id' && mode === 'upsert');

  return fields.filter(isId);
}

/** The maximum number of columns: more than any resource has fields. */
const maxColumns = 100;
/**
 * Numbers of one cell: more than any field may have. Further numbers are not read, because the
 * contract refuses the cell.
 */
const maxNumbers = 1_000;

/**
 * Reads the header of a file.
 * @returns errors for too many columns, for unknown columns, and for columns that occur twice
 */
export function readColumns(
  { create, update, view, unique, key }: ResourceDefinition,
  record: CsvRecord,
): Columns | ImportError[] {
  const { cells: header, delimiter } = record;
  const cells = header.map(cell => cell.trim());
  cells.length = cells.findLastIndex(cell => cell !== '') + 1;
  if (cells.filter(cell => cell !== '').length > maxColumns) {
    return [fileError('too_many', `a file has at most ${maxColumns} columns`, record)];
  }

  const kinds = kindsOf(create);
  for (const [field, column] of kindsOf(update ?? create)) kinds.set(field, column);
  const names = new Map(
    [...Object.keys(view.shape), ...kinds.keys()].flatMap(name => [
      [name, name],
      [camelCase(name), name],
    ]),
  );
  const fields = cells.map(cell => names.get(cell) ?? '');
  const errors = cells.flatMap((cell, index): ImportError[] => {
    const field = fields[index] ?? '';
    if (cell === '') return [];
    if (field === '') {
      const Reason = 'is not a field of this resource';
      const error = { Field: beginningOf(cell), Code: 'unknown', Reason };
      return [cellError(record, index, error)];
    }

    const first = fields.indexOf(field);
    if (first === index) return [];
    const Reason = `is the name of two columns: ${columnLetters(first)} and ${columnLetters(index)}`;
    return [cellError(record, index, { Field: field, Code: 'ambiguous', Reason })];
  });
  if (errors.length > 0) return errors;
  const keyField = [unique && pascalCase(unique), 'id' in key ? 'Id' : undefined].find(
    field => field !== undefined && fields.includes(field),
  );
  return {
    fields,
    writable: fields.map(field => kinds.get(field)),
    keyIndex: keyField === undefined ? -1 : fields.indexOf(keyField),
    keyField,
    hasDecimalComma: delimiter !== ',',
  };
}

/** The name of a column in a spreadsheet: A to Z, then AA. */
function columnLetters(index: number): string {
  const last = String.fromCharCode(65 + (index % 26));
  return index < 26 ? last : columnLetters(Math.floor(index / 26) - 1) + last;
}

/** Characters of a cell that an error repeats. */
const maxValueLength = 100;

/**
 * Places an error of a row in the cell of its field; a field without a column has no cell.
 */
export function placeError(columns: Columns, record: CsvRecord, error: RowError): ImportError {
  const index = error.Field === '' ? -1 : columns.fields.indexOf(error.Field);
  if (index < 0) return { ...fileError(error.Code, error.Reason, record), Field: error.Field };

  const Reason =
    error.Code === 'wrong_type' ? typeReason(columns, index, record, error) : error.Reason;
  return cellError(record, index, { ...error, Reason });
}

/** Says how a cell is written that was not read as the kind of its column. */
function typeReason(
  { writable, hasDecimalComma }: Columns,
  index: number,
  { cells }: CsvRecord,
  { Reason }: RowError,
): string {
  const { kind } = writable[index] ?? {};
  const cell = (cells[index] ?? '').trim();

  if (kind === 'boolean') return 'must be TRUE or FALSE';
  const error = kind === 'number' ? readNumber(cell, hasDecimalComma).error : undefined;
  if (!error) return Reason;

  return hasDecimalComma
    ? 'must be a number in digits, with a comma before decimals, such as 1234,5'
    : error.message;
}

function cellError(
  { line, row, cells }: CsvRecord,
  index: number,
  { Field, Code, Reason }: RowError,
): ImportError {
  return {
    Line: line,
    Row: row,
    Cell: `${columnLetters(index)}${row}`,
    Field,
    Value: beginningOf(cells[index] ?? ''),
    Code,
    Reason,
  };
}

/** Cuts a long text, but no character in two. */
function beginningOf(text: string): string {
  return text.slice(0, maxValueLength).replace(/[\uD800-\uDBFF]$/, '');
}

/**
 * Returns the error of a row with fewer cells than the header, or with a value in a column
 * without a name. Empty cells, as a spreadsheet adds them, are no error.
 */
export function shapeError({ fields }: Columns, record: CsvRecord): ImportError | undefined {
  const { cells } = record;
  if (cells.length < fields.length) {
    const reason = `must have as many cells as the header: ${fields.length}, not ${cells.length}`;
    return fileError('wrong_format', reason, record);
  }

  const stray = cells.findIndex((cell, index) => !fields[index] && cell.trim() !== '');
  if (stray < 0) return undefined;

  const Reason = `has a value in column ${columnLetters(stray)}, which has no name`;
  return cellError(record, stray, { Field: '', Code: 'wrong_format', Reason });
}

/**
 * Returns the body that a row stands for. An empty cell is null where the field can be null,
 * else absent.
 * @throws {Problem} `validation_failed` for a number that has two meanings
 */
export function bodyOf(
  { writable, hasDecimalComma }: Columns,
  cells: readonly string[],
): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  for (const [index, column] of writable.entries()) {
    const cell = cells[index] ?? '';
    if (!column) continue;
    if (cell !== '') {
      if (hasDecimalComma && column.kind === 'number') requireOneMeaning(column.field, cell.trim());
      body[column.field] = parseCell(column, cell, hasDecimalComma);
    } else if (column.isNullable) {
      body[column.field] = null;
    } else if (column.kind === 'numbers') {
      body[column.field] = [];
    }
  }

  return body;
}

/**
 * Refuses a number whose point may be that of thousands or of decimals: `1.500`, in a file in
 * which numbers have a comma.
 */
function requireOneMeaning(field: string, cell: string): void {
  const [, thousands, rest] = /^(-?[1-9]\d{0,2})\.(\d{3})$/.exec(cell) ?? [];
  if (thousands === undefined || rest === undefined) return;

  const texts = [`${thousands}${rest}`, `${thousands},${rest.replace(/0+$/, '') || '0'}`];
  throw fieldProblem(field, `is ${texts.join(' or ')}: write one of them`, 'ambiguous');
}

/**
 * Returns the JSON value of a cell. A cell that is not of the kind of its column stays text,
 * which the contract of the resource then refuses.
 * @throws {Problem} `validation_failed` for a number with more digits than JavaScript keeps
 */
function parseCell({ field, kind }: Column, cell: string, hasDecimalComma: boolean): unknown {
  const text = readText(cell);
  if (kind === 'text') return text;
  const trimmed = text.trim();
  if (kind === 'number') {
    const { number, error } = readNumber(trimmed, hasDecimalComma);
    if (error === inexactNumber) throw fieldProblem(field, error.message, error.code);

    return number ?? text;
  }
  if (kind === 'boolean') {
    return /^(true|false)$/i.test(trimmed) ? trimmed.toLowerCase() === 'true' : text;
  }
  const numbers = trimmed
    .replace(/^\[|\]$/g, '')
    .split(/[\s,;|]+/, maxNumbers + 3) // an empty part may be at each end
    .filter(part => part !== '');
  return numbers.every(part => /^\d+$/.test(part)) ? numbers.map(Number) : text;
}

function readNumber(text: string, hasDecimalComma: boolean): ReadNumber {
  return readDecimal(hasDecimalComma ? text.replace(',', '.') : text);
}

interface Schema {
  type?: string | string[];
  anyOf?: Schema[];
}

/** The fields that a client may send, with their kinds. */
function kindsOf(contract: z.ZodObject): Map<string, Column> {
  const { properties = {} } = z.toJSONSchema(contract, { io: 'input', unrepresentable: 'any' }) as {
    properties?: Record<string, Schema>;
  };
  return new Map(
    Object.entries(properties).map(([field, schema]) => {
      const types = typesOf(schema);
      return [field, { field, kind: kindOf(types), isNullable: types.includes('null') }];
    }),
  );
}

/**
 * Returns the types of the values that a schema accepts. Of a schema that may be null, zod
 * writes them as a list, or as schemas of their own where the values have bounds.
 */
function typesOf({ type = [], anyOf = [] }: Schema): string[] {
  return [...[type].flat(), ...anyOf.flatMap(typesOf)];
}

function kindOf(types: readonly string[]): Kind {
  if (types.includes('array')) return 'numbers';
  if (types.includes('boolean')) return 'boolean';
  return types.includes('integer') || types.includes('number') ? 'number' : 'text';
}
