import type { EntityClass } from '@mikro-orm/postgresql';
import type { z } from 'zod';
import { entityTypes } from './column-types.ts';
import { type JsonFormat, oneRow, rowPerRecord } from './json-columns.ts';
import { continuations, type KeysetKey } from './keyset.ts';
import {
  type Condition,
  type Conditions,
  preparedStatement,
  type RowValues,
  type Statement,
  unpreparedStatement,
  where,
} from './statement.ts';
import { TableColumns } from './table-columns.ts';

/** Maximum records of a list that is read as one row. A longer list may be large. */
const oneRowList = 100;
/** Maximum records of a short list. */
const shortList = 20;
/**
 * The limits that the texts of lists contain: a text has the first of these that the limit of
 * its list does not exceed. For a limit that is only a parameter, PostgreSQL expects a tenth of
 * the table; from 1,000 records on, it would estimate the generic plan as too expensive, and
 * plan each execution anew, which costs as much as reading 20 records.
 */
const lengths = [20, 100, 1_000];
/**
 * Maximum keys of an order that an index serves: one column and the key, in the same direction.
 * No index serves more columns, two directions, or a computed property.
 */
const maxIndexedKeys = 2;

export interface SelectOptions {
  /** The direction of each property to order by. */
  orderBy?: Readonly<Record<string, 'asc' | 'desc'>>;
  limit?: number | undefined;
}

interface JsonOptions extends SelectOptions {
  /** The JSON of a page of at most 100 records. Default: one row. */
  json?: JsonFormat | undefined;
}

/** The facts of a list that its text carries. */
interface ListText {
  orderBy?: SelectOptions['orderBy'] | undefined;
  /** Maximum number of records. */
  length?: number | undefined;
}

interface PageOptions extends Omit<Page, 'keys' | 'conditions'> {
  /** The order of the records, which no two records share. */
  keys: readonly (Omit<KeysetKey, 'sql'> & { readonly property: string })[];
}

/** A record, or all records of a page, as JSON text. A type, so that it is also `RowValues`. */
export type JsonRow = { readonly json: string };

/** A record as JSON text, and the values of its sorted fields as PostgreSQL prints them. */
export interface ListedRecord extends JsonRow {
  readonly keys: readonly (string | null)[];
}

/**
 * Builds the statements that read one table. The rows of `select` are what a response with the
 * view has before its contract.
 */
export class TableReads<View extends z.ZodObject = z.ZodObject> extends TableColumns {
  /** @throws when `entity` is not an entity of MikroORM */
  constructor(entity: EntityClass<object>, view: View) {
    super(entity, view);
  }

  select(conditions: Conditions): Statement<z.input<View>> {
    const values: unknown[] = [];
    return preparedStatement(this.#selectText(this.fields, conditions, {}, values), values);
  }

  /**
   * Like `select`, but each row has one column, `json`: records in their order, separated by
   * commas, each as the JSON text that `JSON.stringify` makes of a row of `select`.
   *
   * A page of at most 100 records is one row, empty for no record, of which this process makes
   * the text: PostgreSQL takes a third of the time that it takes to make it. In a longer list,
   * each row is one record, because a large row would be handled without a pause, and PostgreSQL
   * makes the text, so that a list of 50,000 records takes a quarter of this process's time.
   */
  selectJson(conditions: Conditions, options: JsonOptions = {}): Statement<JsonRow> {
    const values: unknown[] = [];
    const { orderBy, limit = Number.POSITIVE_INFINITY, json = oneRow } = options;
    const isPage = limit <= oneRowList;
    const fields = isPage ? this.plainFields : this.jsonFields;
    const length = lengths.find(each => limit <= each);
    const records = this.#selectText(fields, conditions, { orderBy, length }, values);
    const firsts =
      options.limit === undefined || limit === length ? '' : ` limit $${values.push(limit)}`;
    const flags = { isShort: limit <= shortList, isHeavy: limit > oneRowList };
    if (isPage) {
      const text = firsts === '' ? records : `select * from (${records}) record${firsts}`;
      return { ...preparedStatement<JsonRow>(text, values), ...flags, json };
    }

    const text = `select row_to_json(record)::text as json from (${records}) record${firsts}`;
    return { ...preparedStatement<JsonRow>(text, values), ...flags };
  }

  /** Selects the record with a key: a row with the column `json`, as of `selectJson`. */
  selectRecord(conditions: Conditions): Statement<JsonRow> {
    const values: unknown[] = [];
    const text = this.#selectText(this.plainFields, conditions, {}, values);
    return { ...preparedStatement<JsonRow>(text, values), json: rowPerRecord, isShort: true };
  }

  /**
   * Selects a page of records, in any order: see `pageText`. `json` is as in `selectJson`.
   */
  selectPage(conditions: Conditions, { keys, ...page }: PageOptions): Statement<ListedRecord> {
    const values: unknown[] = [];
    const sortKeys = keys.map(key => ({ ...key, sql: this.sourceOf(key.property) }));
    const text = `
      select (select row_to_json(record)::text from (select ${this.jsonFields}) record) as json,
             array[${keys.map(({ property }) => this.textOf(property)).join(', ')}] as keys
        from ${pageText(this.name, { ...page, conditions, keys: sortKeys }, values)}`;
    const hasOneDirection = keys.every(({ direction }) => direction === keys[0]?.direction);
    const isStored = keys.every(({ property }) => !this.isComputed(property));
    const hasIndex = keys.length <= maxIndexedKeys && hasOneDirection && isStored;
    const isUnindexed = !hasIndex || (page.searches ?? []).length > 0;
    // to know whether there are more
    const read = (page.limit ?? Number.POSITIVE_INFINITY) + (page.offset ?? 0);
    const isLong = read > oneRowList + 1;

    return { ...unpreparedStatement<ListedRecord>(text, values), isHeavy: isUnindexed || isLong };
  }

  /** Counts records, at most `max` of them. */
  selectCount(conditions: Conditions, max: number): Statement {
    const values: unknown[] = [];
    const matching = `select from ${this.name}${where(conditions, values)} limit $${values.push(max)}`;
    const text = `select count(*) as count from (${matching}) matching`;
    return { ...unpreparedStatement(text, values), isHeavy: true };
  }

  /**
   * Returns all properties of the entity, timestamps as text, and locks the rows until the
   * transaction ends.
   */
  selectForUpdate<Row extends object = RowValues>(conditions: Conditions): Statement<Row> {
    const values: unknown[] = [];
    const text = `select ${this.storedProperties} from ${this.name}${where(conditions, values)} for update`;
    return { ...preparedStatement<Row>(text, values), types: entityTypes };
  }

  #selectText(
    fields: string,
    conditions: Conditions,
    { orderBy = {}, length }: ListText,
    values: unknown[],
  ): string {
    const order = Object.entries(orderBy).map(
      ([property, direction]) => `${this.sourceOf(property)} ${direction}`,
    );
    const text = `select ${fields} from ${this.name}${where(conditions, values)}`;
    const ordered = order.length > 0 ? `${text} order by ${order.join(', ')}` : text;
    return length === undefined ? ordered : `${ordered} limit ${length}`;
  }
}

/** The rows of a table that a page has. */
interface Page {
  readonly conditions: Conditions;
  /**
   * Conditions that search texts: no index has the order of the page, and they may match few
   * rows or most of them.
   */
  readonly searches?: Conditions;
  /**
   * Conditions that exclude each other, one of which each row meets, so that each can be a range
   * of an index. Not beside searches or an offset.
   */
  readonly alternatives?: readonly Condition[];
  /** The order of the rows, which no two rows share. */
  readonly keys: readonly KeysetKey[];
  /**
   * The values of the keys in the row before the page, as PostgreSQL prints them. Null counts
   * as larger than any.
   */
  readonly after?: readonly (string | null)[] | undefined;
  readonly limit?: number | undefined;
  /** The rows before the page, if there is no row before it. They are read, and not returned. */
  readonly offset?: number;
}

/** Minimum rows of the probe (`pageText`). */
const minProbe = 1_000;

/**
 * Returns the `from` clause, in the order of the page, that selects its rows under the name of
 * the table. It is written for a statement that is not prepared, because each connection would
 * keep each combination of filters and orders that clients send. So its plan is made for its
 * values.
 *
 * Without `searches`, the rows come from an index in the order of the page, or from a sort, as
 * the planner decides. With them it would decide by an estimate of how many rows match, which
 * is often wrong for texts, and then search 100,000 rows in the order of the page for a text
 * that few rows have. So the page searches the first rows of the order, the *probe*. If they do
 * not fill the page, it searches all rows without an order (`offset 0` keeps the planner from
 * using one), by an index of the texts if there is one, and sorts those that match: they are
 * few, because few rows of the probe matched.
 *
 * The rows that an offset skips are read as such: only those of the page become JSON.
 *
 * @param values gets the values of the text
 */
function pageText(table: string, page: Page, values: unknown[]): string {
  const { conditions, searches = [], alternatives = [], keys, after, limit, offset = 0 } = page;
  const order = `order by ${keys.map(({ sql, direction }) => `${sql} ${direction}`).join(', ')}`;
  const rests: Conditions[] = after ? continuations(keys, after) : [[]];
  const ranges =
    alternatives.length === 0
      ? rests
      : rests.flatMap(rest => alternatives.map(alternative => [alternative, ...rest]));
  const firstRows = (also: Conditions, max: string): string =>
    ranges
      .map(
        range =>
          `(select * from ${table}${where([...conditions, ...also, ...range], values)} ${order} ${max})`,
      )
      .join(' union all ');
  const skipped = offset > 0 ? ` offset $${values.push(offset)}` : '';
  if (limit === undefined) return `(${firstRows(searches, skipped)}) ${table} ${order}`;
  if (searches.length === 0) {
    const length = `limit $${values.push(limit)}`;
    return `(${firstRows([], `${length}${skipped}`)}) ${table} ${order} ${length}`;
  }

  const max = `$${values.push(limit + offset)}`;

  const probed = `limit ${minProbe + 3 * (limit + offset)}`;
  const found = `(select count(*) from probe)`;
  const allRows = ranges.map(
    range =>
      `select * from (select * from ${table}${where([...conditions, ...searches, ...range], values)} offset 0) all_rows
        where ${found} < ${max}`,
  );
  return `(
    with probe as materialized (
      select * from (select * from (${firstRows([], probed)}) ${table} ${order} ${probed}) ${table}${where(searches, values)}
       ${order} limit ${max})
    select * from (select * from probe where ${found} >= ${max} union all ${allRows.join(' union all ')}) ${table}
     ${order} limit ${max}${skipped}
  ) ${table} ${order}`;
}
