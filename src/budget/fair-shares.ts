export interface Demand {
  /** Names sort in the order in which the holders have started. */
  readonly holder: string;
  readonly kind: 'service' | 'command';
  readonly wanted: number;
}

/** Connections that one task of a command has open at the same time: with fewer it cannot end. */
export const maxNested = 4;

/**
 * Divides whole connections by max-min fairness ("water filling"): nobody gets more than it wants, and what one holder
 * does not want is divided among the others. The shares sum to `capacity` at most, and every process calculates the
 * same ones, in whatever order it knows the holders.
 *
 * Commands come first with the connections of one task, the oldest command before the others: if several had a part of
 * what they need, none could end. Nobody gets less than one connection for that.
 */
export function fairShares(demands: readonly Demand[], capacity: number): ReadonlyMap<string, number> {
  const shares = new Map(demands.map(({ holder }) => [holder, 0]));
  let rest = capacity;
  const lacking = ({ holder, wanted }: Demand): number => wanted - (shares.get(holder) ?? 0);
  const give = (demand: Demand, max: number): void => {
    const part = Math.max(0, Math.min(max, lacking(demand), rest));
    shares.set(demand.holder, (shares.get(demand.holder) ?? 0) + part);
    rest -= part;
  };
  const byAge = [...demands].sort((a, b) => (a.holder < b.holder ? -1 : 1));
  for (const demand of byAge) give(demand, 1);
  for (const demand of byAge) if (demand.kind === 'command') give(demand, maxNested - 1);
  const ascending = byAge.sort((a, b) => lacking(a) - lacking(b));
  for (const [index, demand] of ascending.entries()) give(demand, Math.floor(rest / (ascending.length - index)));
  return shares;
}
