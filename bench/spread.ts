/** Minimum, median and maximum of some figures; NaN if there are none. */
export interface Spread {
  readonly min: number;
  readonly median: number;
  readonly max: number;
}

export function spread(figures: number[]): Spread {
  return {
    min: percentile(figures, 0),
    median: percentile(figures, 0.5),
    max: percentile(figures, 1),
  };
}

/** Returns the figure below which this share of the figures is; NaN if there are none. */
export function percentile(figures: number[], share: number): number {
  const sorted = figures.filter(figure => !Number.isNaN(figure)).toSorted((a, b) => a - b);
  return sorted[Math.round((sorted.length - 1) * share)] ?? Number.NaN;
}

/** Returns how long `work` takes, in ms. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}
