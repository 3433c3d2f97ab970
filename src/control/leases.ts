import { type ControlDatabase, queryControl } from './database.ts';

/**
 * The leases that this process holds in a table of the control database with `id`, `holder` and
 * `leased_until`.
 */
export type Leases = ReturnType<typeof createLeases>;

export const renewalMs = 3_000;
const leaseSeconds = 10;
/**
 * The duration of a lease: three renewals, so that a renewal that is late or fails does not end
 * it.
 */
export const leaseTime = `interval '${leaseSeconds} seconds'`;
/**
 * SQL: true if an entry is leased. A lease that ends more than a minute from now does not
 * count: it was written before the clock was set back.
 */
export const isLeased = (row: string): string =>
  `(${row}.leased_until > now() and ${row}.leased_until < now() + interval '1 minute')`;

/** @param holder identifies this process */
export function createLeases(control: ControlDatabase, table: string, holder: string) {
  /**
   * The time at which the lease of each entry was last requested or extended, by
   * `performance.now()`: not later than its begin in the database.
   */
  const held = new Map<number, number>();

  return {
    /**
     * Records that this process has leased an entry: `renew` extends its lease from now on.
     * @param sentAt when the statement was sent, by `performance.now()`
     */
    hold: (id: number, sentAt: number): void => void held.set(id, sentAt),

    /** Records that this process has no lease of an entry any more. */
    forget: (id: number): void => void held.delete(id),

    /**
     * True while no other process can have leased the entry, unless the clock of the control
     * database was set.
     */
    isHeld: (id: number): boolean =>
      performance.now() - (held.get(id) ?? Number.NEGATIVE_INFINITY) < leaseSeconds * 1_000,

    /** Extends the leases of this process. Call it every `renewalMs`. */
    renew: async (): Promise<void> => {
      if (held.size === 0) return;

      const sentAt = performance.now();
      const renewed = await queryControl<{ id: number }>(
        control,
        `${table}_renew`,
        `update ${table} set leased_until = now() + ${leaseTime}
          where holder = $1 and id = any($2::bigint[]) returning id::float8 as id`,
        [holder, [...held.keys()]],
      );

      for (const { id } of renewed) if (held.has(id)) held.set(id, sentAt);
    },
  };
}
