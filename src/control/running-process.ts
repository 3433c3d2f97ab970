/** A process runs while its beat is younger, by the clock of the control database. */
export const maxBeatAgeSeconds = 5;

/**
 * SQL: whether a row of `processes` is that of a running process. A beat that is later than any
 * can be was written before the clock was set back, and does not count.
 * @param row the alias of the table
 */
export const isRunning = (row: string): string =>
  `(${row}.seen_at between clock_timestamp() - interval '${maxBeatAgeSeconds} seconds'
                       and clock_timestamp() + interval '1 minute')`;
