import type { RowValues } from '../../lib/postgres/statement.ts';
import { camelCase } from '../../lib/runtime/casing.ts';

/** Characters of a text that a program may write for a value that is missing, such as `NA`. */
const maxTextLength = 16;
/** A person who gives one record a text changes that record alone. */
const minRows = 2;

/** A column of a file that a program seems to have changed, under the names of the API. */
export interface ImportWarning {
  readonly Field: string;
  /** The text that the records would get. */
  readonly Value: string;
  /** The number of these records. */
  readonly Rows: number;
  readonly Reason: string;
}

/** The cells of one column whose record has no text there. */
interface FilledColumn {
  /** The text of all of them; undefined: they differ, or one of them is empty. */
  text: string | undefined;
  rows: number;
}

/**
 * The cells of a file that would give a text to records without one, by their field. Programs
 * such as readr write `NA` into every empty cell of an export, which is a valid text.
 */
export class FilledCells {
  readonly #columns = new Map<string, FilledColumn>();

  /**
   * Counts the texts of a row whose record exists.
   * @param fields those of the file that are texts
   * @param before the stored record
   * @param after the record as the row would leave it
   */
  addRow(fields: readonly string[], before: RowValues, after: RowValues): void {
    for (const field of fields) {
      const property = camelCase(field);
      if ((before[property] ?? '') === '') this.#add(field, after[property], 1);
    }
  }

  /** Adds the cells of other rows of the file. */
  addAll(others: FilledCells): void {
    for (const [field, { text, rows }] of others.#columns) this.#add(field, text, rows);
  }

  #add(field: string, value: unknown, rows: number): void {
    const text = typeof value === 'string' && value !== '' ? value : undefined;
    const column = this.#columns.get(field);
    if (!column) {
      this.#columns.set(field, { text, rows });
      return;
    }

    column.rows += rows;
    if (column.text !== text) column.text = undefined;
  }

  /** Returns a warning for each column in which every empty cell became the same short text. */
  warnings(): ImportWarning[] {
    return [...this.#columns].flatMap(([Field, { text, rows }]) => {
      if (text === undefined || text.length > maxTextLength || rows < minRows) return [];

      const Reason = `every record of the file that has no ${Field} would get the same text`;
      return { Field, Value: text, Rows: rows, Reason };
    });
  }
}
