import type { z } from 'zod';
import type { FieldError, FieldErrors } from '../../../runtime/field-error.ts';
import { fieldErrorOf } from '../field-error-of.ts';
import { controlCharacters, flag, limit } from '../fields.ts';
import { refuseRepeated } from '../read-fields.ts';
import {
  type Include,
  type ListContract,
  type SortKey,
  sortableNames,
  withKey,
} from './list-contract.ts';
import { bindingOf, readCursor } from './list-cursor.ts';
import { hasControlCharacters } from './list-field.ts';
import { type Filter, isFilterParameter, readFilters } from './list-filters.ts';

/** The parameters of a request for a list. */
export interface ListQuery {
  readonly contract: ListContract;
  /** True when the client wants all records, as CSV. */
  readonly isExport: boolean;
  /**
   * True if the export begins with the byte order mark, by which spreadsheets recognise UTF-8.
   */
  readonly hasByteOrderMark: boolean;
  /** Maximum number of records; undefined = all. */
  readonly limit: number | undefined;
  readonly sort: readonly SortKey[];
  readonly filters: readonly Filter[];
  /** The words, as the client wrote them, each of which one of the searched fields contains. */
  readonly words: readonly string[];
  /** The fields that the records have beyond their view. */
  readonly includes: readonly Include[];
  /** True if the response says how many records the filters match. */
  readonly isCounted: boolean;
  /**
   * The values of the sorted fields of the record before the page, as PostgreSQL prints them.
   */
  readonly after: readonly (string | null)[] | undefined;
  /** The records of the list before the page; 0 for a page after a cursor. */
  readonly offset: number;
  /**
   * Identifies list, order and filters: a cursor is accepted only with the list, order and
   * filters of its own request.
   */
  readonly binding: string;
  readonly path: string;
  /** The parameters of the request that the list knows. */
  readonly parameters: URLSearchParams;
}

/** The parameters of a list that are lists themselves, with commas. */
export const listsOfTexts = ['sort', 'include'];
const single = ['sort', 'q', 'limit', 'after', 'offset', 'bom'];

/** Maximum `offset`: PostgreSQL reads all records before the page. */
export const maxOffset = 10_000;
/** Maximum words of `q`: each one is a condition of its own. */
const maxWords = 20;

/**
 * True for the parameters that a list takes beside those of its own, also when they are written
 * as `limit[]`.
 */
export function isListParameter({ includes }: ListContract, name: string): boolean {
  const [plain = ''] = name.split('[');
  if (plain === 'include') return includes.length > 0;
  return single.includes(plain) || isFilterParameter(name);
}

/**
 * True when a request uses a parameter that the plain list does not have, and so gets a page
 * with a `Link`. A number as `after` is one of the plain list, if that has the parameter: a
 * cursor is never a number.
 */
export function usesListQuery(contract: ListContract, search: URLSearchParams): boolean {
  const { query } = contract;
  for (const [name, value] of search) {
    if (!isListParameter(contract, name) || name === 'bom') continue;
    if (!Object.hasOwn(query.shape, name)) return true;
    if (name === 'after' && !/^\d*$/.test(value)) return true;
  }
  return false;
}

/**
 * Reads the parameters of a list.
 * @param errors gets an entry for each invalid parameter; the result then must not be used
 */
export function readListQuery(
  contract: ListContract,
  path: string,
  search: URLSearchParams,
  { isExport, isCounted }: Pick<ListQuery, 'isExport' | 'isCounted'>,
  errors: FieldErrors,
): ListQuery {
  for (const name of [...single, 'include']) {
    if (isListParameter(contract, name)) refuseRepeated(name, search, errors);
  }

  const sort = readSort(contract, search.get('sort'), errors);
  const filters = readFilters(contract, search, errors);
  const words = readWords(search.get('q'), errors);

  const others = Object.keys(contract.otherParameters.shape).map(
    name => [name, search.get(name)] as const,
  );
  const binding = bindingOf([
    path,
    sort.map(({ field, direction }) => [field.name, direction]),
    filters.map(({ field, operator, values }) => [field.name, operator, values.toSorted()]),
    words,
    others,
  ]);

  const cursor = search.get('after');
  const after = cursor === null ? undefined : readCursor(cursor, binding, sort);
  if (cursor !== null && !after) errors.after ??= [wrongCursor];
  const offset = readOffset(search, errors);

  const names = [...search].filter(
    ([name]) => isListParameter(contract, name) || others.some(([other]) => other === name),
  );
  const parameters = new URLSearchParams(names);

  return {
    contract,
    isExport,
    hasByteOrderMark: read('bom', flag(), search, errors) ?? false,
    limit: read('limit', limitOf(contract, isExport), search, errors),
    sort,
    filters,
    words,
    includes: readIncludes(contract, search.get('include'), errors),
    isCounted,
    after,
    offset,
    binding,
    path,
    parameters,
  };
}

const wrongCursor: FieldError = {
  message: 'must be the cursor of a Link header of the same list, with the same sort and filters',
  code: 'wrong_format',
};

/**
 * Reads the number of records before a page with a number. It is bounded, and beside a cursor
 * any number but 0 would have two meanings.
 */
function readOffset(search: URLSearchParams, errors: FieldErrors): number {
  const text = search.get('offset');
  if (text === null) return 0;
  if (search.has('after') && text !== '0') {
    errors.offset ??= [{ message: 'cannot be sent beside after', code: 'ambiguous' }];
  } else if (!/^(0|[1-9]\d{0,15})$/.test(text)) {
    errors.offset ??= [{ message: 'must be a whole number', code: 'wrong_format' }];
  } else if (Number(text) > maxOffset) {
    errors.offset ??= [farOffset];
  }

  return Number(text);
}

const farOffset: FieldError = {
  message:
    `must be at most ${maxOffset}: read on with the cursor of the Link header, or by a filter, ` +
    'such as gt, of the sorted field',
  code: 'too_large',
  max: maxOffset,
};

/**
 * Without `limit`, an export has all records, and so has a list whose plain one is not paged.
 */
function limitOf({ query }: ListContract, isExport: boolean): z.ZodType<number | undefined> {
  if (isExport) return limit(Number.POSITIVE_INFINITY).unwrap().optional();
  return Object.hasOwn(query.shape, 'limit') ? limit() : limit().unwrap().optional();
}

function read<T>(
  name: string,
  schema: z.ZodType<T>,
  search: URLSearchParams,
  errors: FieldErrors,
): T | undefined {
  const text = search.get(name) ?? undefined;
  const { data, error } = schema.safeParse(text);
  if (error?.issues[0]) errors[name] ??= [fieldErrorOf(error.issues[0], text)];
  return data;
}

function readIncludes(
  { includes }: ListContract,
  text: string | null,
  errors: FieldErrors,
): Include[] {
  if (text === null || includes.length === 0) return [];
  const names = text.split(',');
  if (!names.every(name => includes.some(include => include === name))) {
    errors.include ??= [
      { message: `must be ${includes.join(' or ')}`, code: 'not_allowed', values: includes },
    ];
  }
  return includes.filter(include => names.includes(include));
}

/**
 * A character that no search text contains, and that separates texts that are searched as one.
 */
export const textSeparator = '\x01';

/** Reads the words of `q`, each of which is looked for by itself, in any order. */
function readWords(text: string | null, errors: FieldErrors): string[] {
  if (text === null) return [];
  if (controlCharacters.test(text)) errors.q ??= [hasControlCharacters];

  const words = [...new Set(text.split(/\s+/).filter(word => word !== ''))];
  if (words.length > maxWords) {
    errors.q ??= [
      { message: `must have at most ${maxWords} words`, code: 'too_many', max: maxWords },
    ];
  }
  return words;
}

/** `Name,-CreatedAt` → Name ascending, then CreatedAt descending, then the key. */
function readSort(contract: ListContract, text: string | null, errors: FieldErrors): SortKey[] {
  if (text === null) return [...contract.order];

  const keys: SortKey[] = [];
  for (const item of text.split(',')) {
    const field = contract.fields.get(item.replace(/^-/, ''));
    if (!field?.isSortable) {
      errors.sort ??= [
        { message: unknownSort(item, contract), code: 'unknown', values: sortableNames(contract) },
      ];
    } else if (keys.some(key => key.field === field)) {
      errors.sort ??= [{ message: `names ${field.name} twice`, code: 'ambiguous' }];
    } else {
      keys.push({ field, direction: item.startsWith('-') ? 'desc' : 'asc' });
    }
  }

  return withKey(keys, contract.key);
}

/**
 * A name is repeated only if it looks like that of a parameter: so it is no secret that was put
 * into the wrong parameter.
 */
function unknownSort(item: string, contract: ListContract): string {
  const name = /^-?[A-Za-z]{1,40}$/.test(item) ? item.replace(/^-/, '') : 'this';
  return `cannot be by ${name}, only by ${sortableNames(contract).join(', ')}`;
}
