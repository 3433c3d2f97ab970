import { emailPart, hasLookAlike } from '../../lib/http/request/email.ts';
import { normalText } from '../../lib/http/request/fields.ts';
import { isDay, type ListField } from '../../lib/http/request/list-parameters/list-field.ts';
import type { Filter } from '../../lib/http/request/list-parameters/list-filters.ts';
import {
  type ListQuery,
  textSeparator,
} from '../../lib/http/request/list-parameters/list-query.ts';
import type { Condition } from '../../lib/postgres/statement.ts';
import type { TableStatements } from '../../lib/postgres/table-statements.ts';
import { camelCase } from '../../lib/runtime/casing.ts';

type Columns = Pick<TableStatements, 'sourceOf'>;

/** The conditions of a request for a list. */
interface ListConditions {
  readonly conditions: Condition[];
  /** Those that no index in the order of the page can serve. */
  readonly searches: Condition[];
  /** Conditions that exclude each other, one of which a record must meet; empty for none. */
  readonly alternatives: Condition[];
}

/**
 * Returns the conditions of the filters and the search text of a request. Values are never part
 * of the SQL.
 */
export function listConditions(
  { contract, filters, words, offset }: ListQuery,
  columns: Columns,
): ListConditions {
  const texts = { ...contract, columns };
  const withNull = new Set(filters.filter(isWithNull).map(({ field }) => field));
  const own = filters.filter(
    ({ field, operator }) => operator !== 'orNull' && !withNull.has(field),
  );
  const conditionOf = (filter: Filter) => filterCondition(filter, texts);

  const searched = own.filter(isSearch);
  const conditions = own.filter(filter => !isSearch(filter)).map(conditionOf);
  const [only] = searched;
  const isAlone = searched.length === 1 && withNull.size === 0 && words.length === 0;
  if (only && isAlone && offset === 0 && only.operator === 'prefix' && only.field.kind === 'text') {
    const alternatives = prefixAlternatives(only, texts);
    if (alternatives.length > 0) return { conditions, searches: [], alternatives };
  }

  return {
    conditions,
    searches: [
      ...searched.map(conditionOf),
      ...[...withNull].map(field => orNullCondition(field, filters, texts)),
      ...searchConditions(contract.search, words, texts),
    ],
    alternatives: [],
  };
}

/** The condition that one of several is met. */
export function anyOf(conditions: readonly Condition[]): Condition | undefined {
  if (conditions.length === 0) return undefined;
  return [
    `(${conditions.map(([sql]) => sql).join(' or ')})`,
    ...conditions.flatMap(([, ...values]) => values),
  ];
}

/** The facts that decide how texts are searched. */
interface SearchedTexts {
  readonly search: readonly ListField[];
  readonly hasTrigrams: boolean;
  readonly columns: Columns;
}

const isWithNull = ({ operator, values }: Filter): boolean =>
  operator === 'orNull' && values.includes('true');

/** The condition that a field meets all of its filters, or is null. */
function orNullCondition(
  field: ListField,
  filters: readonly Filter[],
  texts: SearchedTexts,
): Condition {
  const conditions = filters
    .filter(each => each.field === field && each.operator !== 'orNull')
    .map(filter => filterCondition(filter, texts));
  const all = conditions.map(([sql]) => sql).join(' and ');

  return [
    `((${all}) or ${sourceOf(field, texts)} is null)`,
    ...conditions.flatMap(([, ...values]) => values),
  ];
}

const sourceOf = ({ name }: ListField, { columns }: Pick<SearchedTexts, 'columns'>): string =>
  columns.sourceOf(camelCase(name));

/**
 * The conditions that the searched fields contain each word. Words that no index finds are
 * compared with the texts of a record together, which are joined and brought to lower case once
 * for all of them.
 */
function searchConditions(
  search: readonly ListField[],
  words: readonly string[],
  texts: SearchedTexts,
): Condition[] {
  const isRead = (word: string): boolean =>
    !isOtherInAddress(search, word) && !hasIndex(search, normalText(word), texts);
  const read = words.filter(isRead).map(normalText);
  const sources = search.map(field => sourceOf(field, texts));

  return [
    ...words.filter(word => !isRead(word)).map(word => searchCondition(search, word, texts)),
    ...[read.filter(isAscii), read.filter(word => !isAscii(word))]
      .filter(group => group.length > 0)
      .map(group => readText(sources, 'contains', group)),
  ];
}

/** True for a word that an address has in another form than a name. */
function isOtherInAddress(search: readonly ListField[], word: string): boolean {
  const hasAddress = search.some(({ kind }) => kind === 'email');
  return hasAddress && emailPart(word) !== normalText(word).toLowerCase();
}

/**
 * The condition that one of the searched fields contains a word. The word is brought into the
 * form in which the values of a field are stored. The forms differ: an address has
 * `xn--bcher-kva` where a name has `bücher`, and keeps U+212A, which a name does not.
 */
function searchCondition(
  search: readonly ListField[],
  word: string,
  texts: SearchedTexts,
): Condition {
  if (!isOtherInAddress(search, word)) return containsText(search, normalText(word), texts);

  const addresses = search.filter(({ kind }) => kind === 'email');
  const others = search.filter(({ kind }) => kind !== 'email');
  const [sql, ...values] = containsText(others, normalText(word), texts);
  const [inAddress, ...parts] = addressCondition(addresses, 'contains', emailPart(word), texts);
  return [`(${sql} or ${inAddress})`, ...values, ...parts];
}

/** Characters of the shortest text that a trigram index finds. */
const minTrigram = 3;

/** True if trigram indexes of the fields find a text. */
function hasIndex(
  fields: readonly ListField[],
  text: string,
  { hasTrigrams, search }: SearchedTexts,
): boolean {
  return hasTrigrams && text.length >= minTrigram && fields.every(field => search.includes(field));
}

/** The condition that one of the fields contains a text in any letter case. */
function containsText(fields: readonly ListField[], text: string, texts: SearchedTexts): Condition {
  if (!hasIndex(fields, text, texts)) {
    const sources = fields.map(field => sourceOf(field, texts));
    return readText(sources, 'contains', [text]);
  }

  // one condition for each column, as the indexes find them
  const conditions = fields.map(field => indexedCondition(field, text, texts));
  return anyOf(conditions.filter(condition => condition !== undefined)) ?? ['false'];
}

/**
 * The condition that a field contains a text, by its trigram index. A choice has none: the text
 * stands for the values that contain it. Undefined if there is no such value.
 */
function indexedCondition(
  field: ListField,
  text: string,
  texts: SearchedTexts,
): Condition | undefined {
  const sql = sourceOf(field, texts);
  if (field.kind !== 'choice') return [`${sql} ilike ?`, patternOf('contains', text)];

  const part = text.replaceAll('İ', 'i').toLowerCase(); // as PostgreSQL has it
  const values = field.values.filter(value => value.toLowerCase().includes(part));
  return values.length === 0 ? undefined : [`${sql} = any (?)`, values];
}

/** The condition that one of the addresses contains a part, or begins with it. */
function addressCondition(
  fields: readonly ListField[],
  operator: TextOperator,
  part: string,
  texts: SearchedTexts,
): Condition {
  const sources = fields.map(field => sourceOf(field, texts));
  if (!hasLookAlike(part)) return readText(sources, operator, [part]);

  const pattern = patternOf(operator, part);
  return [`(${sources.map(sql => `${sql} like ?`).join(' or ')})`, ...sources.map(() => pattern)];
}

type TextOperator = 'prefix' | 'contains';

/** Returns the pattern of `like` for a text. */
function patternOf(operator: TextOperator, text: string): string {
  return operator === 'prefix' ? `${literal(text)}%` : `%${literal(text)}%`;
}

/**
 * The condition of patterns in any letter case, for texts without an index, in half the time:
 * compares all texts as one, with `textSeparator` between them. For ASCII parts, only ASCII
 * letters need to be changed to lower case, and `İ`, whose lower case is `i`.
 * @param parts each of which the texts have; all in ASCII, or none
 */
function readText(
  sources: readonly string[],
  operator: TextOperator,
  parts: readonly string[],
): Condition {
  const patterns = parts.map(part => patternOf(operator, part));
  const joined =
    sources.length === 1
      ? (sources[0] ?? '')
      : sources.map(sql => `coalesce(${sql}, '')`).join(` || '${textSeparator}' || `);
  const value = patterns.join(textSeparator);
  const isOne = parts.length === 1;

  if (!parts.every(isAscii)) {
    if (isOne) return [`(${joined}) ilike ?`, value];
    return [`lower(${joined}) like all (${listOf('lower(?::text)')})`, value];
  }

  const plain = parts.some(part => /i/i.test(part)) ? `replace(${joined}, 'İ', 'i')` : joined;
  const compared = isOne ? '?' : `all (${listOf('?::text')})`;
  return [`lower((${plain}) collate "C") like ${compared}`, value.toLowerCase()];
}

/** SQL of the list of patterns in one text. */
const listOf = (sql: string): string => `string_to_array(${sql}, '${textSeparator}')`;

const isAscii = (text: string): boolean => /^[ -~]*$/.test(text);

/**
 * True for a condition that no index in the order of the page can serve. `null` is one of them:
 * records without a value are often the oldest, and a page in the order of the newest would
 * read all others first.
 */
function isSearch({ field, operator, values }: Filter): boolean {
  if (operator === 'null') return values.includes('true');
  if (field.isComputed || field.isList || operator === 'contains') return true;
  return operator === 'prefix' && !(field.kind === 'email' && isAscii(values[0] ?? ''));
}

function filterCondition({ field, operator, values }: Filter, texts: SearchedTexts): Condition {
  const sql = sourceOf(field, texts);
  const [value = ''] = values;
  if (operator === 'null') return [`${sql} is ${value === 'true' ? '' : 'not '}null`];
  if (field.isList) return [`${sql} && ?`, values];
  if (field.kind === 'timestamp') return timestampCondition(sql, operator, values);
  if (field.kind === 'code') return codeCondition(sql, operator, values);

  switch (operator) {
    case 'equal':
      if (values.length > 1) return [`${sql} = any (?)`, values];
      // A text that no list is sorted by has only its trigram index, which finds patterns of
      // `like`.
      return field.kind === 'text' && !field.isSortable
        ? [`${sql} like ?`, literal(value)]
        : [`${sql} = ?`, value];
    case 'prefix':
    case 'contains':
      if (field.kind === 'email') {
        // stored in small letters, as far as they are ASCII
        return operator === 'prefix' && isAscii(value)
          ? [`${sql} ^@ ?`, value]
          : addressCondition([field], operator, value, texts);
      }
      if (operator === 'contains') return containsText([field], value, texts);
      return (
        anyOf(prefixAlternatives({ field, operator, values }, texts)) ?? [
          `${sql} ilike ?`,
          patternOf('prefix', value),
        ]
      );
    default:
      return [`${sql} ${comparisons[operator]} ?`, value];
  }
}

/**
 * Returns the conditions that a text begins with another one, in any letter case: one for each
 * spelling of its first letters, which the index of a sorted text finds, in its order. Empty for
 * a text without such an index. An index of the lower case would not have the order of the list:
 * of 100,000 names, a page of a frequent prefix took 34 ms with one, and takes 0.3 ms so.
 */
function prefixAlternatives({ field, values }: Filter, texts: SearchedTexts): Condition[] {
  const [value = ''] = values;
  const sql = sourceOf(field, texts);
  if (!field.isSortable || field.isComputed) return [];

  return spellingsOfBeginning(value).map(beginning => [
    `${sql} ^@ ? and ${sql} ilike ?`,
    beginning,
    patternOf('prefix', value),
  ]);
}

/** The end of the letters that may have several capitals: above, each has one (tested). */
const lastOfSeveral = 0x3000;

/**
 * The capitals of small letters, in the lower case of PostgreSQL, beside the one that
 * `toUpperCase` returns: the sign of Kelvin (U+212A) is another capital of `k`.
 */
const otherCapitals: ReadonlyMap<string, readonly string[]> = Map.groupBy(
  Array.from({ length: lastOfSeveral }, (_, code) => String.fromCodePoint(code)).filter(
    letter => smallOf(letter) !== letter && smallOf(letter).toUpperCase() !== letter,
  ),
  smallOf,
);

/** Returns the lower case of a letter. JavaScript would add a dot to that of `İ`. */
function smallOf(letter: string): string {
  return letter === 'İ' ? 'i' : letter.toLowerCase();
}

/** Letters whose spellings are sought by an index: up to nine spellings of the two. */
const soughtLetters = 2;

/** Returns the beginnings, in every letter case, that a text with this prefix can have. */
function spellingsOfBeginning(prefix: string): string[] {
  let beginnings = [''];
  for (const letter of [...prefix].slice(0, soughtLetters)) {
    const small = smallOf(letter);
    const others = otherCapitals.get(small) ?? [];
    const spellings = [letter, small, small.toUpperCase(), ...others].filter(
      each => [...each].length === 1, // `ß` in capitals is another text in PostgreSQL
    );
    beginnings = beginnings.flatMap(beginning =>
      [...new Set(spellings)].map(spelling => beginning + spelling),
    );
  }

  return prefix === '' ? [] : beginnings;
}

/**
 * Compares a code in any letter case, by the function of the database that finds it in a path.
 * The order of codes is that of the list.
 */
function codeCondition(
  sql: string,
  operator: Filter['operator'],
  values: readonly string[],
): Condition {
  const [value = ''] = values;
  switch (operator) {
    case 'equal':
      // Each value as a constant, which the planner knows the frequency of: a code that no
      // record has is looked up, and not sought in all of them.
      return [`code_key(${sql}) in (${values.map(() => 'code_key(?)').join(', ')})`, ...values];
    case 'prefix':
      return [`lower(${sql}) ^@ lower(?)`, value];
    case 'contains':
      return [`lower(${sql}) like lower(?)`, `%${literal(value)}%`];
    default:
      return [`${sql} ${comparisons[operator]} ?`, value];
  }
}

const comparisons: Readonly<Record<string, string>> = { gte: '>=', lte: '<=', gt: '>', lt: '<' };

/**
 * Compares a timestamp as responses show it: without the microseconds within a millisecond.
 * Each value stands for the whole millisecond that begins with it, and a date for its whole day
 * in UTC.
 */
function timestampCondition(
  sql: string,
  operator: Filter['operator'],
  values: readonly string[],
): Condition {
  const spans = values.map(value =>
    isDay(value)
      ? { start: `${value}T00:00:00Z`, length: '24 hours' }
      : { start: value, length: '1 millisecond' },
  );
  const [{ start, length } = { start: '', length: '' }] = spans;
  const endOf = (span: string) => `?::timestamptz + interval '${span}'`;
  switch (operator) {
    case 'gte':
      return [`${sql} >= ?`, start];
    case 'gt':
      return [`${sql} >= ${endOf(length)}`, start];
    case 'lt':
      return [`${sql} < ?`, start];
    case 'lte':
      return [`${sql} < ${endOf(length)}`, start];
    default: {
      const ranges = spans.map(span => `${sql} >= ? and ${sql} < ${endOf(span.length)}`);
      return [`(${ranges.join(' or ')})`, ...spans.flatMap(each => [each.start, each.start])];
    }
  }
}

/** Returns a pattern of `like` that matches only this text. */
function literal(text: string): string {
  return text.replace(/[\\%_]/g, character => `\\${character}`);
}
