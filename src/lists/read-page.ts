import { camelCase } from '../casing.ts';
import { nextPath, Page } from '../http/lists/list-page.ts';
import type { ListQuery } from '../http/lists/list-query.ts';
import { Representation } from '../http/representation.ts';
import type { Condition, RowValues, Statement, TableStatements } from '../postgres/table-statements.ts';
import { listConditions } from './list-conditions.ts';

interface PageSource {
  table: TableStatements;
  /** The records that the caller may see, and that the plain list has. */
  conditions: readonly (Condition | undefined)[];
  read: (statement: Statement) => Promise<RowValues[]>;
  /** Turns the JSON text of a record into that of the response. */
  toResponse?: (json: string) => string;
}

/** Returns the page that a request asks for. Reads one record more than the page has, to know whether there are more. */
export async function readPage(query: ListQuery, { table, conditions, read, toResponse }: PageSource): Promise<Page> {
  const { limit } = query;
  const rows = (await read(
    table.selectPage([...conditions, ...listConditions(query, table)], {
      keys: query.sort.map(({ field, direction }) => ({
        property: camelCase(field.name),
        direction,
        isNullable: field.isNullable,
      })),
      after: query.after,
      limit: limit === undefined ? undefined : limit + 1,
    }),
  )) as { json: string; keys: (string | null)[] }[];
  const records = rows.slice(0, limit);
  const last = records.length < rows.length ? records.at(-1) : undefined;
  const representation = await Representation.ofList(textsOf(records, toResponse));
  return new Page(representation, last && nextPath(query, last.keys));
}

function* textsOf(rows: readonly { json: string }[], toResponse = (json: string) => json): Iterable<string> {
  for (const { json } of rows) yield toResponse(json);
}
