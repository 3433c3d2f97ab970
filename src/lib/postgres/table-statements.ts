import type { z } from 'zod';
import {
  type Condition,
  type Conditions,
  preparedStatement,
  type RowValues,
  type Statement,
  where,
} from './statement.ts';
import { TableReads } from './table-reads.ts';

interface Insert {
  readonly text: string;
  readonly textWithActor: string;
}

/**
 * Builds the SQL statements of one table. They return records as the API sends them: exactly
 * the fields of a view, in its order. The records are sent without becoming entities.
 */
export class TableStatements<View extends z.ZodObject = z.ZodObject> extends TableReads<View> {
  /**
   * The inserts by the names of their properties. Bounded, because contracts decide the
   * properties.
   */
  readonly #inserts = new Map<string, Insert>();

  /**
   * @param computed SQL with its values, in place of the values of these properties
   */
  insert(
    row: RowValues,
    computed: Readonly<Record<string, Condition>> = {},
  ): Statement<z.input<View>> {
    const { text, textWithActor } = this.#insertOf(Object.keys(row), computed);
    const values = Object.entries(row).flatMap(([property, value]) => {
      const [, ...parameters] = computed[property] ?? ['?', value];
      return parameters;
    });
    const withActor = (actor: string): Statement =>
      preparedStatement(textWithActor, [...values, actor]);
    return { ...preparedStatement(text, values), withActor };
  }

  /** Inserts rows that have the same properties, in their order. */
  insertMany(rows: readonly RowValues[]): Statement {
    const columns = Object.keys(rows[0] ?? {}).map(property => this.sourceOf(property));
    const text = `insert into ${this.name} (${columns.join(', ')})
      select ${columns.join(', ')} from jsonb_populate_recordset(null::${this.name}, $1)`;
    return preparedStatement(text, [this.#toJson(rows)]);
  }

  /**
   * Sets all other properties of the rows that have the same value in `key`. The rows have the
   * same properties.
   */
  updateMany(rows: readonly RowValues[], key: string): Statement {
    const columns = Object.keys(rows[0] ?? {}).map(property => this.sourceOf(property));
    const keyColumn = this.sourceOf(key);
    const assignments = columns
      .filter(column => column !== keyColumn)
      .map(column => `${column} = changed.${column}`);
    const text = `update ${this.name} stored set ${assignments.join(', ')}
      from jsonb_populate_recordset(null::${this.name}, $1) changed where stored.${keyColumn} = changed.${keyColumn}`;
    return preparedStatement(text, [this.#toJson(rows)]);
  }

  update(row: RowValues, conditions: Conditions): Statement<z.input<View>> {
    const values: unknown[] = Object.values(row);
    const assignments = Object.keys(row).map(
      (property, i) => `${this.sourceOf(property)} = $${i + 1}`,
    );
    const text = `update ${this.name} set ${assignments.join(', ')}${where(conditions, values)}`;
    return preparedStatement(`${text} returning ${this.fields}`, values);
  }

  delete(conditions: Conditions): Statement<z.input<View>> {
    const values: unknown[] = [];
    return preparedStatement(
      `delete from ${this.name}${where(conditions, values)} returning ${this.fields}`,
      values,
    );
  }

  /**
   * Returns the texts of an insert, which are made once for the same properties: for each new
   * text, its hash would be computed to find its name.
   */
  #insertOf(properties: string[], computed: Readonly<Record<string, Condition>>): Insert {
    const key = [...properties, ...Object.keys(computed)].join();
    const made = this.#inserts.get(key);
    if (made) return made;

    const columns = properties.map(property => this.sourceOf(property)).join(', ');
    let count = 0;
    const parameters = properties
      .map(property => (computed[property]?.[0] ?? '?').replaceAll('?', () => `$${++count}`))
      .join(', ');
    const into = `insert into ${this.name} (${columns})`;
    const insert = {
      text: `${into} values (${parameters}) returning ${this.fields}`,
      textWithActor: `
        with actor as materialized (select set_config('app.actor', $${count + 1}, true))
        ${into} select ${parameters} from actor returning ${this.fields}`,
    };

    this.#inserts.set(key, insert);
    return insert;
  }

  /**
   * Returns rows as JSON, under the names of their columns. The rows have the same properties.
   */
  #toJson(rows: readonly RowValues[]): string {
    const columns = Object.keys(rows[0] ?? {}).map(
      property => [property, this.sourceOf(property)] as const,
    );
    return JSON.stringify(
      rows.map(row => {
        const stored: RowValues = {};
        for (const [property, column] of columns) stored[column] = row[property];
        return stored;
      }),
    );
  }
}
