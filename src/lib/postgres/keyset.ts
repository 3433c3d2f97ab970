/** SQL with one value for each `?` in it. */
type Range = readonly [sql: string, ...values: unknown[]];

/** One of the expressions that rows are ordered by. */
export interface KeysetKey {
  /** The expression; it contains no `?`. */
  readonly sql: string;
  readonly direction: 'asc' | 'desc';
  readonly isNullable: boolean;
}

/**
 * Returns the conditions for the rows after a row, in the order of the keys: alternatives that
 * exclude each other. A row is after another one if the keys before some key are equal, and
 * this key is after the other's. Null counts as larger than every value, as in `order by`
 * without `nulls`. Each alternative is a range of an index on the keys; the row comparison of
 * SQL, `(a, b) > (1, 2)`, has no order for nulls.
 * @param row the values of the keys
 */
export function continuations(
  keys: readonly KeysetKey[],
  row: readonly (string | null)[],
): Range[][] {
  return keys.flatMap((key, i) => {
    const equal = keys.slice(0, i).map((earlier, j) => isEqual(earlier, row[j] ?? null));
    return isAfter(key, row[i] ?? null).map(condition => [...equal, condition]);
  });
}

function isEqual({ sql }: KeysetKey, value: string | null): Range {
  return value === null ? [`${sql} is null`] : [`${sql} = ?`, value];
}

function isAfter({ sql, direction, isNullable }: KeysetKey, value: string | null): Range[] {
  if (direction === 'asc') {
    if (value === null) return [];
    const larger: Range = [`${sql} > ?`, value];
    return isNullable ? [larger, [`${sql} is null`]] : [larger];
  }
  return value === null ? [[`${sql} is not null`]] : [[`${sql} < ?`, value]];
}
