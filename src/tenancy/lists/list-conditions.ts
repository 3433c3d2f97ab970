import { emailPart, hasLookAlike } from '../../lib/http/email.ts';
import { normalText } from '../../lib/http/fields.ts';
import type { ListField } from '../../lib/http/list-parameters/list-field.ts';
import type { Filter } from '../../lib/http/list-parameters/list-filters.ts';
import { type ListQuery, textSeparator } from '../../lib/http/list-parameters/list-query.ts';
import type { Condition } from '../../lib/postgres/statement.ts';
import type { TableStatements } from '../../lib/postgres/table-statements.ts';
import { camelCase } from '../../lib/runtime/casing.ts';

type Columns = Pick<TableStatements, 'sourceOf'>;

/**
 * Returns the conditions of the filters and the search text of a request. Values are never part
 * of the SQL.
 * @returns the conditions; apart, as `searches`, those that no index in the order of the page
 *   can serve
 */
export function listConditions(
  { contract: { search, hasTrigrams }, filters, q }: ListQuery,
  columns: Columns,
): { conditions: Condition[]; searches: Condition[] } {
  const conditionOf = (filter: Filter) =>
    filterCondition(filter, columns.sourceOf(camelCase(filter.field.name)));
  const searches = filters.filter(isSearch).map(conditionOf);
  if (q !== undefined) {
    searches.push(searchCondition(search, q, { hasTrigrams, columns }));
  }
  return { conditions: filters.filter(filter => !isSearch(filter)).map(conditionOf), searches };
}

/**
 * The condition that one of the searched fields contains a text. The text is brought into the
 * form in which the values of a field are stored. The forms differ: an address has
 * `xn--bcher-kva` where a name has `bücher`, and keeps U+212A, which a name does not.
 */
function searchCondition(
  search: readonly ListField[],
  q: string,
  { hasTrigrams, columns }: { hasTrigrams: boolean; columns: Columns },
): Condition {
  const sourcesOf = (fields: readonly ListField[]) =>
    fields.map(({ name }) => columns.sourceOf(camelCase(name)));
  const contains = (sources: readonly string[], text: string) =>
    hasTrigrams && text.length >= minTrigram ? findText(sources, text) : readText(sources, text);

  const text = normalText(q);
  const address = emailPart(q);
  const addresses = search.filter(({ kind }) => kind === 'email');
  if (addresses.length === 0 || address === text.toLowerCase()) {
    return contains(sourcesOf(search), text);
  }

  const others = search.filter(({ kind }) => kind !== 'email');
  const [sql, ...values] = contains(sourcesOf(others), text);
  const [inAddress, ...parts] = hasLookAlike(address)
    ? likeText(sourcesOf(addresses), address)
    : readText(sourcesOf(addresses), address);
  return [`(${sql} or ${inAddress})`, ...values, ...parts];
}

/** Characters of the shortest text that a trigram index finds. */
const minTrigram = 3;

/**
 * The condition that one of the texts contains another in any letter case, as their trigram
 * indexes find it.
 */
function findText(sources: readonly string[], text: string): Condition {
  const pattern = `%${literal(text)}%`;
  return [`(${sources.map(sql => `${sql} ilike ?`).join(' or ')})`, ...sources.map(() => pattern)];
}

/** The condition that one of the texts contains another one as it is. */
function likeText(sources: readonly string[], text: string): Condition {
  const pattern = `%${literal(text)}%`;
  return [`(${sources.map(sql => `${sql} like ?`).join(' or ')})`, ...sources.map(() => pattern)];
}

/**
 * The same condition in any letter case, for texts without an index, in half the time: compares
 * all texts as one, with `textSeparator` between them. For an ASCII text, only ASCII letters
 * need to be changed to lower case, and `İ`, whose lower case is `i`.
 */
function readText(sources: readonly string[], text: string): Condition {
  const joined = sources.map(sql => `coalesce(${sql}, '')`).join(` || '${textSeparator}' || `);
  if (!isAscii(text)) return [`(${joined}) ilike ?`, `%${literal(text)}%`];
  const plain = /i/i.test(text) ? `replace(${joined}, 'İ', 'i')` : joined;
  return [`lower((${plain}) collate "C") like ?`, `%${literal(text.toLowerCase())}%`];
}

const isAscii = (text: string): boolean => /^[ -~]*$/.test(text);

/**
 * True for a condition that no index in the order of the page can serve. `null` is one of them:
 * records without a value are often the oldest, and a page in the order of the newest would
 * read all others first.
 */
function isSearch({ field, operator, values }: Filter): boolean {
  if (operator === 'null') return values.includes('true');
  if (field.isComputed) return true;
  const isPattern = !field.isSortable || field.kind === 'code';
  return operator === 'contains' || (operator === 'prefix' && isPattern);
}

function filterCondition({ field, operator, values }: Filter, sql: string): Condition {
  const [value = ''] = values;
  if (operator === 'null') return [`${sql} is ${value === 'true' ? '' : 'not '}null`];
  if (field.kind === 'timestamp') return timestampCondition(sql, operator, values);
  if (field.kind === 'code') return codeCondition(sql, operator, values);

  // A text that no list is sorted by has only its trigram index, which finds patterns of
  // `like`.
  const hasPattern = field.kind === 'text' && !field.isSortable;
  switch (operator) {
    case 'equal':
      if (values.length > 1) return [`${sql} = any (?)`, values];
      return hasPattern ? [`${sql} like ?`, literal(value)] : [`${sql} = ?`, value];
    case 'prefix':
      return hasPattern ? [`${sql} like ?`, `${literal(value)}%`] : [`${sql} ^@ ?`, value];
    case 'contains':
      return [`${sql} like ?`, `%${literal(value)}%`];
    default:
      return [`${sql} ${comparisons[operator]} ?`, value];
  }
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
      return [`${sql} ${comparisons[operator as keyof typeof comparisons]} ?`, value];
  }
}

const comparisons = { gte: '>=', lte: '<=', gt: '>', lt: '<' };

/**
 * Compares a timestamp as responses show it: without the microseconds within a millisecond.
 * Each value stands for the whole millisecond that begins with it.
 */
function timestampCondition(
  sql: string,
  operator: Filter['operator'],
  values: readonly string[],
): Condition {
  const end = `?::timestamptz + interval '1 millisecond'`;
  const [value = ''] = values;
  switch (operator) {
    case 'gte':
      return [`${sql} >= ?`, value];
    case 'gt':
      return [`${sql} >= ${end}`, value];
    case 'lt':
      return [`${sql} < ?`, value];
    case 'lte':
      return [`${sql} < ${end}`, value];
    default: {
      const ranges = values.map(() => `${sql} >= ? and ${sql} < ${end}`).join(' or ');
      return [`(${ranges})`, ...values.flatMap(moment => [moment, moment])];
    }
  }
}

/** Returns a pattern of `like` that matches only this text. */
function literal(text: string): string {
  return text.replace(/[\\%_]/g, character => `\\${character}`);
}
