import { Random } from '../test/simulation/random.ts';

/** One request, as the load generator sends it. */
export interface Request {
  readonly method: 'GET' | 'POST' | 'PUT';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Input of the load generator: each connection sends one request after the other. */
export interface Plan {
  readonly requests: Request[];
  /** Indexes into `requests`, repeated; default: the requests in their order, repeated. */
  readonly order?: number[];
  readonly connections: number;
  /** Pause of each connection before each request, in ms; default 0. */
  readonly pauseMs?: number;
  /** Status of every response; `records` is the length of the array in its body. */
  readonly expect: { status: number; records?: number };
}

const orderLength = 20_000;

/** Returns random indexes below `count`, uniformly distributed; the same in every run. */
export function uniform(count: number): number[] {
  const random = new Random(1);
  return Array.from({ length: orderLength }, () => random.integer(0, count - 1));
}

/**
 * Returns random indexes below `count`, Zipf-distributed (index n has weight 1 / (n + 1)); the
 * same in every run.
 */
export function zipf(count: number): number[] {
  const random = new Random(2);
  const sums: number[] = [];
  let sum = 0;
  for (let rank = 1; rank <= count; rank++) {
    sum += 1 / rank;
    sums.push(sum);
  }
  return Array.from({ length: orderLength }, () => {
    const point = random.next() * sum;
    return sums.findIndex(bound => point < bound);
  });
}
