import { emailPart } from '../../lib/http/email.ts';
import type { Filter } from '../../lib/http/list-parameters/list-filters.ts';
import { type ListQuery, textSeparator } from '../../lib/http/list-parameters/list-query.ts';
import type { Condition } from '../../lib/postgres/statement.ts';
import type { TableStatements } from '../../lib/postgres/table-statements.ts';
import { camelCase } from '../../lib/runtime/casing.ts';

type Columns = Pick<TableStatements, 'sourceOf'>;

/**
 * Returns the conditions of the filters and the search text of a request. Values are never part
 * of the SQL.
 * @returns `searches` apart: conditions that no index in the order of the page helps
 */
export function listConditions(
  { contract: { search, hasTrigrams }, filters, q }: ListQuery,
  columns: Columns,
): { conditions: Condition[]; searches: Condition[] } {
  const conditionOf = (filter: Filter) =>
    filterCondition(filter, columns.sourceOf(camelCase(filter.field.name)));
  const searches = filters.filter(isSearch).map(conditionOf);
  if (q !== undefined) {
    const sources = search.map(({ name }) => columns.sourceOf(camelCase(name)));
    const addresses = search
      .filter(({ kind }) => kind === 'email')
      .map(({ name }) => columns.sourceOf(camelCase(name)));
    const [sql, ...values] =
      hasTrigrams && q.length >= minTrigram ? findText(sources, q) : readText(sources, q);
    // `xn--bcher-kva` is not in the text of `bücher`, which stands for both.
    if (addresses.length > 0 && /xn--/i.test(q)) {
      const [inAddress, ...parts] = readText(addresses, emailPart(q));
      searches.push([`(${sql} or ${inAddress})`, ...values, ...parts]);
    } else {
      searches.push([sql, ...values]);
    }
  }
  return { conditions: filters.filter(filter => !isSearch(filter)).map(conditionOf), searches };
}

/** Characters of the shortest text that a trigram index finds. */
const minTrigram = 3;

/** The condition that one of the texts contains another, as their trigram indexes find it. */
function findText(sources: readonly string[], text: string): Condition {
  const pattern = `%${literal(text)}%`;
  return [`(${sources.map(sql => `${sql} ilike ?`).join(' or ')})`, ...sources.map(() => pattern)];
}

/**
 * The same condition for texts without an index, in half the time: compares all texts as one,
 * with `textSeparator` between them. For an ASCII text, only ASCII letters need to be changed
 * to lower case, and `İ`, whose lower case is `i`.
 */
function readText(sources: readonly string[], text: string): Condition {
  const joined = sources.map(sql => `coalesce(${sql}, '')`).join(` || '${textSeparator}' || `);
  if (!isAscii(text)) return [`(${joined}) ilike ?`, `%${literal(text)}%`];
  const plain = /i/i.test(text) ? `replace(${joined}, 'İ', 'i')` : joined;
  return [`lower((${plain}) collate "C") like ?`, `%${literal(text.toLowerCase())}%`];
}

const isAscii = (text: string): boolean => /^[ -~]*$/.test(text);

/**
 * True for a condition that no index in the order of the page helps with. One is `null`:
 * records without a value are often the oldest, and a page of the newest would read all others
 * before them.
 */
function isSearch({ field, operator, values }: Filter): boolean {
  if (operator === 'null') return values.includes('true');
  if (field.isComputed) return true;
  return operator === 'contains' || (operator === 'prefix' && !field.isSortable);
}

function filterCondition({ field, operator, values }: Filter, sql: string): Condition {
  const [value = ''] = values;
  if (operator === 'null') return [`${sql} is ${value === 'true' ? '' : 'not '}null`];
  if (field.kind === 'timestamp') return timestampCondition(sql, operator, values);
  // A text that no list is sorted by has no index but that of its trigrams, which finds
  // patterns of `like`.
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

/** Text as a pattern of `like` that matches only this text. */
function literal(text: string): string {
  return text.replace(/[\\%_]/g, character => `\\${character}`);
}
