/** One request as the load maker sends it. */
export interface Request {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** What the load maker does: so many connections, each sending one request after the other. */
export interface Plan {
  readonly requests: Request[];
  /** Indexes into `requests`, from the first again when they are through; without it, the requests in their order. */
  readonly order?: number[];
  readonly connections: number;
  /** How long a connection waits before each request, in ms. */
  readonly pauseMs?: number;
  /** What every answer must be. */
  readonly expect: { status: number; records?: number };
}

const orderLength = 20_000;

/** Every index as often as any other, by chance; the same every time. */
export function uniform(count: number): number[] {
  const random = seeded(1);
  return Array.from({ length: orderLength }, () => Math.floor(random() * count));
}

/** Zipf with exponent 1: the second is asked half as often as the first, the third a third … */
export function zipf(count: number): number[] {
  const random = seeded(2);
  const sums: number[] = [];
  let sum = 0;
  for (let rank = 1; rank <= count; rank++) {
    sum += 1 / rank;
    sums.push(sum);
  }
  return Array.from({ length: orderLength }, () => {
    const point = random() * sum;
    return sums.findIndex(upTo => point < upTo);
  });
}

/** mulberry32: chance that is the same in every run. */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
