import pg from 'pg';

/** Writes a column, as PostgreSQL sends it, as JSON text. */
export type JsonWriter = (text: string) => string;

/**
 * The JSON that is made of the rows of a statement. The process makes it of plain columns:
 * PostgreSQL takes longer to make it (`row_to_json` looks up the type of each column of each
 * row) than to read the rows.
 *
 * The texts are those of `row_to_json`, with timestamps in UTC to the millisecond. The session
 * must write times in ISO format and in UTC, as every session of this project does.
 */
export interface JsonFormat {
  /** True: all rows become one, whose records have commas between them. False: a row each. */
  readonly isOneRow: boolean;
  /** Writers of columns, by their names, in place of those of their types. */
  readonly writers?: Readonly<Record<string, JsonWriter>>;
}

/** The JSON of a page or of one record, of which nothing is changed. */
export const oneRow: JsonFormat = { isOneRow: true };
export const rowPerRecord: JsonFormat = { isOneRow: false };

/** Leaves every value the text that PostgreSQL sends. */
export const sentTypes: pg.CustomTypesConfig = { getTypeParser: () => same };

/** A column of a result, as `pg` describes it. */
export interface Column {
  readonly name: string;
  readonly dataTypeID: number;
}

const { BOOL, INT2, INT4, INT8, NUMERIC, TIMESTAMPTZ, JSON: JSON_TYPE, JSONB } = pg.types.builtins;
const { FLOAT4, FLOAT8, TEXT, VARCHAR, BPCHAR, UUID, INET, DATE, TIME } = pg.types.builtins;
const int4Array = 1007;
const int8Array = 1016;
const textArray: number = 1009; // which the types of `pg` do not name
const textsOf = pg.types.getTypeParser(textArray);

const writers = new Map<number, JsonWriter>([
  [INT2, same],
  [INT4, same],
  [INT8, same],
  [JSON_TYPE, same],
  [JSONB, same],
  [TEXT, quoted],
  [VARCHAR, quoted],
  [BPCHAR, quoted],
  [UUID, quoted],
  [INET, quoted],
  [DATE, quoted],
  [TIME, quoted],
  [FLOAT4, numberText],
  [FLOAT8, numberText],
  [NUMERIC, numberText],
  [BOOL, text => (text === 't' ? 'true' : 'false')],
  [TIMESTAMPTZ, timeText],
  [int4Array, numbersText],
  [int8Array, numbersText],
  [textArray, text => JSON.stringify(textsOf(text))],
]);

/** Makes the JSON of the rows of one statement, whose columns are known. */
export class JsonRows {
  /** For each column, the text before its value. */
  readonly #labels: readonly string[];
  readonly #writers: readonly JsonWriter[];

  /** @throws for a type that no column of a response has had */
  constructor(columns: readonly Column[], format: JsonFormat) {
    this.#labels = columns.map(
      ({ name }, index) => `${index > 0 ? ',' : '{'}${JSON.stringify(name)}:`,
    );
    this.#writers = columns.map(column => format.writers?.[column.name] ?? writerOf(column));
  }

  /** Returns the JSON of a row; its columns are texts, or null. */
  write(columns: readonly (string | null)[]): string {
    let json = '';
    for (let index = 0; index < columns.length; index++) {
      const text = columns[index];
      json += this.#labels[index]!;
      json += typeof text === 'string' ? this.#writers[index]!(text) : 'null';
    }
    return `${json}}`;
  }
}

/**
 * Joins the records of a statement whose rows are one.
 * @returns the rows, of the type that the statement says its text returns
 */
export function inRows<Row extends object>(
  format: JsonFormat | undefined,
  records: Record<string, unknown>[],
): Row[] {
  const rows = format?.isOneRow ? [{ json: records.map(({ json }) => json).join(',') }] : records;
  return rows as Row[];
}

function writerOf({ name, dataTypeID }: Column): JsonWriter {
  const writer = writers.get(dataTypeID);
  if (!writer) throw new Error(`no JSON is known for the type ${dataTypeID} of column ${name}`);
  return writer;
}

function same(text: string): string {
  return text;
}

function quoted(text: string): string {
  return JSON.stringify(text);
}

function numbersText(text: string): string {
  return `[${text.slice(1, -1).replaceAll('NULL', 'null')}]`;
}

/** `NaN` and `Infinity` are no numbers of JSON. */
function numberText(text: string): string {
  return text.endsWith('N') || text.endsWith('y') ? quoted(text) : text;
}

const time = /^(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00(?: BC)?$/;

/**
 * `2026-11-21 10:00:00.123456+00` → `"2026-11-21T10:00:00.123Z"`, as `isoTime` does in SQL: a
 * year has four digits or more, and no sign.
 */
function timeText(text: string): string {
  // nearly every time has microseconds
  if (text.length === 29 && text[10] === ' ' && text.endsWith('+00')) {
    return `"${text.slice(0, 10)}T${text.slice(11, 23)}Z"`;
  }

  const [, day, hours, fraction = ''] = time.exec(text) ?? [];
  if (day === undefined) return quoted(text);
  return `"${day}T${hours}.${fraction.padEnd(3, '0').slice(0, 3)}Z"`;
}
