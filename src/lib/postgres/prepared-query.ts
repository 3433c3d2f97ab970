import pg from 'pg';
import { asError } from '../narrow.ts';
import { OwnQuery, type QueryCallback } from '../seams/own-query.ts';
import { type Column, inRows, type JsonFormat, JsonRows } from './json-columns.ts';
import type { RowValues, Statement } from './statement.ts';

type Parse = (text: string) => unknown;

/** The server's description of the columns of a statement. */
interface RowFormat {
  readonly types: pg.CustomTypesConfig | undefined;
  readonly json: JsonFormat | undefined;
  /** Makes the rows of a statement with `json`. */
  readonly jsonRows: JsonRows | undefined;
  readonly names: readonly string[];
  readonly parsers: readonly Parse[];
  /** A row of null. */
  readonly empty: RowValues;
}

/** The prepared statements of one connection whose rows the server has described. */
export class DescribedStatements {
  /** The formats of rows, by the name of the statement. Bounded by the number of names. */
  readonly #formats = new Map<string, RowFormat>();
  #undescribing: object | undefined;

  formatOf({ name, types, json }: Statement<object>): RowFormat | undefined {
    const format = this.#formats.get(name);
    return format?.types === types && format?.json === json ? format : undefined;
  }

  describe({ name, types, json }: Statement<object>, fields: readonly Column[]): RowFormat {
    const { getTypeParser } = types ?? pg.types;
    const format = {
      types,
      json,
      jsonRows: json && new JsonRows(fields, json),
      names: fields.map(field => field.name),
      parsers: fields.map(({ dataTypeID }) => getTypeParser(dataTypeID, 'text')),
      empty: Object.fromEntries(fields.map(field => [field.name, null])),
    };
    this.#formats.set(name, format);
    return format;
  }

  /** Returns a view of the connection that does not ask the server for a description. */
  undescribing(connection: object): object {
    const view: object =
      this.#undescribing ?? Object.create(connection, { describe: { value: () => {} } });
    this.#undescribing = view;
    return view;
  }
}

/**
 * A query of a prepared statement that returns rows. The server describes the rows of a
 * statement once for each connection; `pg` requests the description with each query, and makes
 * a parser of it, which for one row takes a tenth of the time of a request. The description
 * stays valid: if a change of a table changed the rows, the server would refuse the statement
 * (`0A000`, after which the connection is not used any more).
 */
export class PreparedQuery<Row extends object> extends OwnQuery<Row> {
  readonly #statement: Statement<Row>;
  readonly #described: DescribedStatements;
  readonly #records: RowValues[] = [];
  #format: RowFormat | undefined;
  #error: Error | undefined;

  constructor(
    statement: Statement<Row>,
    described: DescribedStatements,
    callback: QueryCallback<Row>,
  ) {
    super(statement.text); // `pg` would copy the statement property by property
    this.name = statement.name;
    this.values = statement.values;
    this.callback = callback;
    this.#statement = statement;
    this.#described = described;
  }

  override prepare(connection: object): void {
    this.#format = this.#described.formatOf(this.#statement);
    super.prepare(this.#format ? this.#described.undescribing(connection) : connection);
  }

  handleRowDescription({ fields }: { fields: Column[] }): void {
    try {
      this.#format = this.#described.describe(this.#statement, fields);
    } catch (error) {
      this.#error = asError(error);
    }
  }

  handleDataRow({ fields }: { fields: (string | null)[] }): void {
    if (this.#error) return;
    try {
      if (!this.#format) throw new Error(`the server has not described the rows of ${this.name}`);
      const { names, parsers, empty, jsonRows } = this.#format;
      if (jsonRows) {
        this.#records.push({ json: jsonRows.write(fields) });
        return;
      }

      const row: RowValues = { ...empty };
      for (let index = 0; index < fields.length; index++) {
        const text = fields[index];
        if (typeof text === 'string') row[names[index]!] = parsers[index]!(text);
      }
      this.#records.push(row);
    } catch (error) {
      this.#error = asError(error);
    }
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(connection: object): void {
    if (this.#error) this.handleError(this.#error, connection);
    else this.callback(null, inRows<Row>(this.#statement.json, this.#records));
  }
}
