import { z } from 'zod';
import { readText } from '../../lib/http/request/csv.ts';
import { fieldNameOf } from '../../lib/http/request/field-error-of.ts';
import { lengths, text } from '../../lib/http/request/fields.ts';
import { camelCase, pascalCase } from '../../lib/runtime/casing.ts';
import { inexactNumber, type ReadNumber, readDecimal } from '../../lib/runtime/exact-number.ts';
import type { FieldError, FieldErrors } from '../../lib/runtime/field-error.ts';
import { withT } from '../../lib/runtime/time-text.ts';
import type { References } from '../resources/rest/references.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import { fileError, type ImportError, type RowError } from './import-report.ts';
import type { CsvRecord } from './read-csv.ts';

/** The way in which the text of a cell becomes the JSON value of its field. */
type Kind = 'text' | 'number' | 'boolean' | 'time' | 'numbers';

interface Column {
  readonly field: string;
  readonly kind: Kind;
  /** True for a number without decimals, and for a list of them. */
  readonly isWhole: boolean;
  readonly isNullable: boolean;
  /** The property of a reference by number. */
  readonly reference?: string | undefined;
  /** True if a title or a code may stand in the place of that number. */
  readonly takesTitle?: boolean;
}

/** A column with the title of another record, to which another column refers. */
interface TitleColumn {
  readonly index: number;
  readonly field: string;
  /** The property that refers to the record. */
  readonly reference: string;
}

/** The columns of a file. A column of a field that the service sets is undefined. */
export interface Columns {
  /**
   * The fields up to the last column with a name; '' for a column without one, whose cells must
   * be empty.
   */
  readonly fields: readonly string[];
  readonly writable: readonly (Column | undefined)[];
  /** The fields of the columns whose cells are texts. */
  readonly texts: readonly string[];
  /** The contract of the fields that the file has, for a record that exists. */
  readonly contract: z.ZodObject;
  readonly titles: readonly TitleColumn[];
  /** The positions of the columns of fields that the service sets. */
  readonly fixed: readonly number[];
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
 * Returns the columns of a row with ids of records, which have a meaning only in the tenant that
 * gave them.
 */
export function idFields(
  { writable, keyField, keyIndex }: Columns,
  { cells }: Pick<CsvRecord, 'cells'>,
  mode: 'create' | 'upsert',
): string[] {
  const referring = writable.flatMap((column, index) => {
    const cell = readText(cells[index] ?? '').trim();
    if (column?.reference === undefined || !/[^\s[\]]/.test(cell)) return [];
    return column.takesTitle && isTitle(cell) ? [] : [column.field];
  });

  const hasKey = keyField === 'Id' && mode === 'upsert' && (cells[keyIndex] ?? '').trim() !== '';
  return hasKey ? ['Id', ...referring] : referring;
}

/** True for a cell that names a record by its title or code, and not by its number. */
function isTitle(cell: string): boolean {
  return !/^[-+]?[\d.,]+$/.test(cell);
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
  { create, view, unique, key, references = {} }: ResourceDefinition,
  record: CsvRecord,
): Columns | ImportError[] {
  const { cells: header, delimiter } = record;
  const cells = header.map(cell => cell.trim());
  cells.length = cells.findLastIndex(cell => cell !== '') + 1;
  if (cells.filter(cell => cell !== '').length > maxColumns) {
    return [fileError('too_many', `a file has at most ${maxColumns} columns`, record)];
  }

  const kinds = kindsOf(create, references);
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
  const titles = Object.entries(references).flatMap(([reference, { shownAs = '' }]) => {
    const field = pascalCase(shownAs);
    const index = fields.indexOf(field);
    return index < 0 || shownAs === '' ? [] : [{ index, field, reference }];
  });
  const present = Object.fromEntries(
    [...fields, ...titles.map(({ reference }) => pascalCase(reference))]
      .filter(field => kinds.has(field))
      .map(field => [field, true]),
  );
  const isSet = (field: string) =>
    kinds.has(field) || field === keyField || field === 'IsDeleted' || field === '';

  return {
    fields,
    writable: fields.map(field => kinds.get(field)),
    texts: fields.filter(field => kinds.get(field)?.kind === 'text'),
    contract: create.pick(present as never),
    titles,
    fixed: fields.flatMap((field, index) =>
      isSet(field) || titles.some(title => title.index === index) ? [] : [index],
    ),
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
  const field = fieldNameOf(error.Field);
  const title = columns.titles.find(({ reference }) => pascalCase(reference) === field);
  const index = error.Field === '' ? -1 : columns.fields.indexOf(field);
  if (index < 0 && title) return cellError(record, title.index, { ...error, Field: title.field });
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
  const { kind, isWhole } = writable[index] ?? {};
  const cell = (cells[index] ?? '').trim();

  if (kind === 'boolean') return 'must be TRUE or FALSE';
  const error = kind === 'number' ? readNumber(cell, hasDecimalComma).error : undefined;
  if (!error) return Reason;
  if (isWhole) return 'must be a whole number in digits, such as 12';

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

/** The facts of a row beside its body. */
interface RowFacts {
  /** The errors of its cells. */
  readonly errors: FieldErrors;
  /** The titles in the place of references, by property. */
  readonly titles: Record<string, string>;
}

/**
 * Returns the body that a row stands for. An empty cell is null where the field can be null,
 * else absent.
 * @param facts gets the errors of cells, such as a number that has two meanings, and the titles
 *   of other records. The body has the number 1 in the place of a title.
 */
export function bodyOf(
  { writable, titles, hasDecimalComma }: Columns,
  cells: readonly string[],
  facts: RowFacts = { errors: {}, titles: {} },
): Record<string, unknown> {
  const body: Record<string, unknown> = {};
  for (const [index, column] of writable.entries()) {
    const cell = cells[index] ?? '';
    if (!column) continue;
    if (cell !== '') {
      body[column.field] = readCell(column, cell, hasDecimalComma, facts);
    } else if (column.isNullable) {
      body[column.field] = null;
    } else if (column.kind === 'numbers') {
      body[column.field] = [];
    }
  }

  for (const { index, reference } of titles) {
    const field = pascalCase(reference);
    const cell = readText(cells[index] ?? '').trim();
    if (cell === '' || (body[field] !== undefined && body[field] !== null)) continue;
    body[field] = readTitle(reference, cell, facts);
  }

  return body;
}

/** Returns the JSON value of a cell, or the number that stands for a title. */
function readCell(
  column: Column,
  cell: string,
  hasDecimalComma: boolean,
  facts: RowFacts,
): unknown {
  const { field, kind, reference, takesTitle } = column;
  const title = readText(cell).trim();
  if (reference !== undefined && takesTitle && isTitle(title)) {
    return readTitle(reference, title, facts);
  }

  const error = kind === 'number' ? numberError(cell.trim(), hasDecimalComma) : undefined;
  if (error) facts.errors[field] = [error];
  return parseCell(column, cell, hasDecimalComma);
}

/** A title, or a code: as long as the longest of either. */
const titleText = text({ max: lengths.name });

/** Remembers a title. Returns the number that stands for its record until that is found. */
function readTitle(reference: string, cell: string, { errors, titles }: RowFacts): number {
  const read = titleText.safeParse(cell);
  if (read.success) titles[reference] = read.data;
  else errors[pascalCase(reference)] = [{ message: 'is no title or code', code: 'invalid_text' }];

  return 1;
}

/**
 * Returns the error of a number with more digits than JavaScript keeps, and of one whose point
 * may be that of thousands or of decimals: `1.500`, in a file in which numbers have a comma.
 */
function numberError(cell: string, hasDecimalComma: boolean): FieldError | undefined {
  const { error } = readNumber(readText(cell).trim(), hasDecimalComma);
  if (error === inexactNumber) return error;

  const [, thousands, rest] = /^(-?[1-9]\d{0,2})\.(\d{3})$/.exec(cell) ?? [];
  if (!hasDecimalComma || thousands === undefined || rest === undefined) return undefined;

  const texts = [`${thousands}${rest}`, `${thousands},${rest.replace(/0+$/, '') || '0'}`];
  return { message: `is ${texts.join(' or ')}: write one of them`, code: 'ambiguous' };
}

/**
 * Returns the JSON value of a cell. A cell that is not of the kind of its column stays text,
 * which the contract of the resource then refuses.
 */
function parseCell({ kind }: Column, cell: string, hasDecimalComma: boolean): unknown {
  const text = readText(cell);
  if (kind === 'text') return text;
  if (kind === 'time') return withT(text);
  const trimmed = text.trim();
  if (kind === 'number') return readNumber(trimmed, hasDecimalComma).number ?? text;
  if (kind === 'boolean') {
    return /^(true|false)$/i.test(trimmed) ? trimmed.toLowerCase() === 'true' : text;
  }
  const numbers = trimmed
    .replace(/^\[|\]$/g, '')
    .split(/[\s,;|]+/, maxNumbers + 3) // an empty part may be at each end
    .filter(part => part !== '');
  return numbers.map(part => (/^\d+$/.test(part) ? Number(part) : part));
}

function readNumber(text: string, hasDecimalComma: boolean): ReadNumber {
  return readDecimal(hasDecimalComma ? text.replace(',', '.') : text);
}

interface Schema {
  type?: string | string[];
  format?: string;
  anyOf?: Schema[];
}

/** The fields that a client may send, with their kinds. */
function kindsOf(contract: z.ZodObject, references: References): Map<string, Column> {
  const { properties = {} } = z.toJSONSchema(contract, { io: 'input', unrepresentable: 'any' }) as {
    properties?: Record<string, Schema>;
  };
  return new Map(
    Object.entries(properties).map(([field, schema]) => {
      const types = typesOf(schema);
      const kind = isTime(schema) ? 'time' : kindOf(types);
      const property = camelCase(field);
      const { to, title = to?.unique } = references[property] ?? {};
      const reference = to && 'id' in to.key ? property : undefined;
      const column = {
        field,
        kind,
        isWhole: types.includes('integer') && !types.includes('number'),
        isNullable: types.includes('null'),
        reference,
        takesTitle: kind === 'number' && title !== undefined,
      };
      return [field, column];
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

function isTime({ format, anyOf = [] }: Schema): boolean {
  return format === 'date-time' || anyOf.some(isTime);
}

function kindOf(types: readonly string[]): Kind {
  if (types.includes('array')) return 'numbers';
  if (types.includes('boolean')) return 'boolean';
  return types.includes('integer') || types.includes('number') ? 'number' : 'text';
}
