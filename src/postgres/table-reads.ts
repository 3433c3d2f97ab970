import { entityTypes } from './column-types.ts';
import type { KeysetKey } from './keyset.ts';
import { type Page, pageText } from './page-text.ts';
import { type Conditions, preparedStatement, type Statement, unpreparedStatement, where } from './statement.ts';
import { TableColumns } from './table-columns.ts';

/** A list of at most so many records is read as one row. */
const oneRowList = 100;
/** A list of at most so many records is short. */
const shortList = 20;
/** Lists are sorted by one column and the key with an index, by more, or by a computed property, without one. */
const maxIndexedKeys = 2;

export interface SelectOptions {
  /** The direction of each property to order by. */
  orderBy?: Readonly<Record<string, 'asc' | 'desc'>>;
  limit?: number | undefined;
}

interface JsonOptions extends SelectOptions {
  /** True when the text of each record is to be changed, which must not take long without a pause. */
  isRowPerRecord?: boolean;
}

interface PageOptions extends Omit<Page, 'keys' | 'conditions'> {
  /** The order of the records, which no two records share. */
  keys: readonly (Omit<KeysetKey, 'sql'> & { readonly property: string })[];
}

/** Builds the statements that read one table. */
export class TableReads extends TableColumns {
  select(conditions: Conditions): Statement {
    const values: unknown[] = [];
    return preparedStatement(this.#selectText(this.fields, conditions, {}, values), values);
  }

  /**
   * Like `select`, but each row has one column, `json`: records in their order, separated by commas, each as the JSON
   * text that `JSON.stringify` makes of a row of `select`. PostgreSQL makes the text, so that a list of 50,000 records
   * takes a quarter of this process's time.
   *
   * A page of at most 100 records is one row, empty for no record: this process takes two thirds of the time that it
   * takes for one row each. In a longer list, each row is one record, because a large row would be handled without a
   * pause.
   */
  selectJson(conditions: Conditions, options: JsonOptions = {}): Statement {
    const values: unknown[] = [];
    const records = this.#selectText(this.jsonFields, conditions, options, values);
    const { limit = Number.POSITIVE_INFINITY, isRowPerRecord = false } = options;
    const text =
      limit <= oneRowList && !isRowPerRecord
        ? `select array_to_string(array(select row_to_json(record)::text from (${records}) record), ',') as json`
        : `select row_to_json(record)::text as json from (${records}) record`;
    return { ...preparedStatement(text, values), isShort: limit <= shortList };
  }

  /** Selects the record with a key, as `selectJson` does. */
  selectRecord(conditions: Conditions): Statement {
    return { ...this.selectJson(conditions), isShort: true };
  }

  /** Selects a page of records, in any order: see `pageText`. Each row has `json`, as in `selectJson`, and `keys`. */
  selectPage(conditions: Conditions, { keys, ...page }: PageOptions): Statement {
    const values: unknown[] = [];
    const sortKeys = keys.map(key => ({ ...key, sql: this.sourceOf(key.property) }));
    const text = `
      select (select row_to_json(record)::text from (select ${this.jsonFields}) record) as json,
             array[${keys.map(({ property }) => this.textOf(property)).join(', ')}] as keys
        from ${pageText(this.name, { ...page, conditions, keys: sortKeys }, values)}`;
    const hasIndex = keys.length <= maxIndexedKeys && !keys.some(({ property }) => this.isComputed(property));
    const isUnindexed = !hasIndex || (page.searches ?? []).length > 0;
    return { ...unpreparedStatement(`page of ${this.name}`, text, values), isUnindexed };
  }

  /** Counts records, at most `max` of them. */
  selectCount(conditions: Conditions, max: number): Statement {
    const values: unknown[] = [];
    const matching = `select from ${this.name}${where(conditions, values)} limit $${values.push(max)}`;
    const text = `select count(*) as count from (${matching}) matching`;
    return { ...unpreparedStatement(`count of ${this.name}`, text, values), isUnindexed: true };
  }

  /** Returns all properties of the entity, timestamps as text, and locks the rows until the transaction ends. */
  selectForUpdate(conditions: Conditions): Statement {
    const values: unknown[] = [];
    const text = `select ${this.storedProperties} from ${this.name}${where(conditions, values)} for update`;
    return { ...preparedStatement(text, values), types: entityTypes };
  }

  #selectText(
    fields: string,
    conditions: Conditions,
    { orderBy = {}, limit }: SelectOptions,
    values: unknown[],
  ): string {
    const order = Object.entries(orderBy).map(([property, direction]) => `${this.sourceOf(property)} ${direction}`);
    const text = `select ${fields} from ${this.name}${where(conditions, values)}`;
    const ordered = order.length > 0 ? `${text} order by ${order.join(', ')}` : text;
    return limit === undefined ? ordered : `${ordered} limit $${values.push(limit)}`;
  }
}
