import { camelCase } from '../casing.ts';
import type { Filter, ListQuery } from '../http/lists/list-query.ts';
import type { Condition, TableStatements } from '../postgres/table-statements.ts';

type Columns = Pick<TableStatements, 'sourceOf'>;

/** Returns the conditions of the filters and the search text of a request. Values are never part of the SQL. */
export function listConditions({ filters, q, search }: ListQuery, columns: Columns): Condition[] {
  const conditions = filters.map(filter => filterCondition(filter, columns.sourceOf(camelCase(filter.field.name))));
  if (q === undefined) return conditions;
  const pattern = `%${literal(q)}%`;
  const sql = search.map(({ name }) => `${columns.sourceOf(camelCase(name))} ilike ?`).join(' or ');
  return [...conditions, [`(${sql})`, ...search.map(() => pattern)]];
}

function filterCondition({ field, operator, values }: Filter, sql: string): Condition {
  const [value = ''] = values;
  if (operator === 'null') return [`${sql} is ${value === 'true' ? '' : 'not '}null`];
  if (field.kind === 'timestamp') return timestampCondition(sql, operator, values);
  switch (operator) {
    case 'equal':
      return values.length === 1 ? [`${sql} = ?`, value] : [`${sql} = any (?)`, values];
    case 'prefix':
      return [`${sql} ^@ ?`, value];
    case 'contains':
      return [`${sql} like ?`, `%${literal(value)}%`];
    default:
      return [`${sql} ${comparisons[operator]} ?`, value];
  }
}

const comparisons = { gte: '>=', lte: '<=', gt: '>', lt: '<' };

/**
 * Compares a timestamp as responses show it: without the microseconds within a millisecond. Each value stands for the
 * whole millisecond that begins with it.
 */
function timestampCondition(sql: string, operator: Filter['operator'], values: readonly string[]): Condition {
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
