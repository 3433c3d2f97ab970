export interface Demand {
  readonly holder: string;
  readonly wanted: number;
}

/**
 * Divides whole connections by max-min fairness ("water filling"): nobody gets more than it wants, and what one holder
 * does not want is divided among the others. The shares sum to `capacity` at most, and every process calculates the
 * same ones, in whatever order it knows the holders.
 */
export function fairShares(demands: readonly Demand[], capacity: number): ReadonlyMap<string, number> {
  const ascending = [...demands].sort((a, b) => a.wanted - b.wanted || (a.holder < b.holder ? -1 : 1));
  const shares = new Map<string, number>();
  let rest = capacity;
  for (const [index, { holder, wanted }] of ascending.entries()) {
    const share = Math.min(wanted, Math.floor(rest / (ascending.length - index)));
    shares.set(holder, share);
    rest -= share;
  }
  return shares;
}
