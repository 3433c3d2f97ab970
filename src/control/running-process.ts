/**
 * The age of its last beat up to which a process counts as running, by the clock of the control
 * database.
 */
export const maxBeatAgeSeconds = 5;

/**
 * SQL: true if a row of `processes` is that of a running process. A beat more than a minute in
 * the future does not count: it was written before the clock was set back.
 * @param row the alias of the table
 */
export const isRunning = (row: string): string =>
  `(${row}.seen_at between clock_timestamp() - interval '${maxBeatAgeSeconds} seconds'
                       and clock_timestamp() + interval '1 minute')`;
