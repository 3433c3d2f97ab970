import type { ListQuery } from '../../lib/http/request/list-parameters/list-query.ts';
import type { JsonFormat } from '../../lib/postgres/json-columns.ts';
import type { Condition, RowValues, Statement } from '../../lib/postgres/statement.ts';
import type { ListedRecord } from '../../lib/postgres/table-reads.ts';
import type { TableStatements } from '../../lib/postgres/table-statements.ts';
import { camelCase } from '../../lib/runtime/casing.ts';
import { listConditions } from './list-conditions.ts';

/** The reads that make the records of a list. */
interface ListReads {
  read<Row extends object = RowValues>(statement: Statement<Row>): Promise<Row[]>;
  /** Like `read`, but ends after `ms`, and then returns undefined. Default: `read`. */
  readWithin?<Row extends object = RowValues>(
    statement: Statement<Row>,
    ms: number,
  ): Promise<Row[] | undefined>;
}

/** The source of the records of a list. */
export interface ListSource {
  table: TableStatements;
  /** The records that the caller may see, and that the plain list has. */
  conditions: readonly (Condition | undefined)[];
  /** The context of the request, if the records are in its tenant's database. */
  reads: ListReads;
  /** Returns the names of users by their ids, for a list that may include them. */
  userNames?: (ids: readonly number[]) => Promise<ReadonlyMap<number, string>>;
  /** The JSON of a plain page, with what `toResponse` changes. */
  json?: JsonFormat;
  /** Turns the JSON text of a record, as that of the columns, into that of the response. */
  toResponse?: (json: string) => string;
}

/** Reads the records that a request asks for, in their order, beginning after its cursor. */
export async function readRecords(
  query: ListQuery,
  { table, conditions, reads }: ListSource,
  limit: number | undefined,
): Promise<ListedRecord[]> {
  const { conditions: filters, searches, alternatives } = listConditions(query, table);
  const statement = table.selectPage([...conditions, ...filters], {
    searches,
    alternatives,
    keys: query.sort.map(({ field, direction }) => ({
      property: camelCase(field.name),
      direction,
      isNullable: field.isNullable,
    })),
    after: query.after,
    offset: query.offset,
    limit,
  });

  return reads.read(statement);
}
