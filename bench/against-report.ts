import { number, table } from './report.ts';
import { percentile } from './spread.ts';

/** This build, or the one that it is compared with. */
export type Side = 'present' | 'against';

/**
 * The need of one build for one kind of request in one round; CPU in µs per request, NaN if
 * unknown.
 */
export interface Cost {
  /**
   * Time per request in µs: with one client the latency, with several the inverse of the
   * throughput.
   */
  readonly time: number;
  readonly cpuService: number;
  readonly cpuPostgres: number;
  readonly cpu: number;
}

export interface Comparison {
  /** Names of the builds. */
  readonly present: string;
  readonly against: string;
  /** The conditions of the run, one sentence each. */
  readonly environment: string[];
  readonly results: KindResult[];
}

/** The cost of a kind of request with so many clients, by round. */
interface KindResult extends Record<Side, Cost[]> {
  readonly kind: string;
  readonly title: string;
  readonly clients: number;
}

/**
 * A ratio of this build to the other: that of the medians, and the middle half of the ratios of
 * the rounds.
 */
interface Ratio {
  readonly ofMedians: number;
  readonly low: number;
  readonly high: number;
}

const figures = ['time', 'cpuService', 'cpuPostgres', 'cpu'] as const;
type Figure = (typeof figures)[number];

const legend = `Costs of one request, this build / the other one: above 1, this build is slower. Ratio of the medians (middle half of
the ratios of the rounds). *Time* is the latency with 1 client, and the inverse of the throughput with several. CPU is
user and system time of the process of the service, and of PostgreSQL with its backends; it is what survives a busy
machine.`;

/** Returns the comparison as Markdown. */
export function comparisonReport({ present, against, environment, results }: Comparison): string {
  const ratioLines = results.map(result => [
    result.kind,
    String(result.clients),
    ...figures.map(figure => ratioText(ratioOf(result, figure))),
    result.title,
  ]);
  const costLines = results.map(result => [
    result.kind,
    String(result.clients),
    pair(result, costs => 1e6 / median(costs, 'time')),
    pair(result, costs => median(costs, 'cpuService')),
    pair(result, costs => median(costs, 'cpuPostgres')),
  ]);

  return [
    environment.map(line => `- ${line}`).join('\n'),
    legend,
    table(
      ['Kind', 'clients', 'time', 'CPU service', 'CPU PostgreSQL', 'CPU of both', 'what'],
      ratioLines,
    ),
    `Medians of ${present} / ${against}; CPU in µs per request:`,
    table(['Kind', 'clients', 'requests/s', 'CPU service', 'CPU PostgreSQL'], costLines),
  ].join('\n\n');
}

/** Returns the comparison with its ratios, for JSON. */
export function comparisonJson({ results, ...comparison }: Comparison): object {
  const withRatios = results.map(result => {
    const ratios = figures.map(figure => [figure, ratioOf(result, figure)]);
    return { ...result, ratios: Object.fromEntries(ratios) };
  });

  return { ...comparison, results: withRatios };
}

function ratioOf({ present, against }: KindResult, figure: Figure): Ratio {
  const ofRounds = present.map(
    (cost, round) => cost[figure] / (against[round]?.[figure] ?? Number.NaN),
  );

  return {
    ofMedians: median(present, figure) / median(against, figure),
    low: percentile(ofRounds, 0.25),
    high: percentile(ofRounds, 0.75),
  };
}

function ratioText({ ofMedians, low, high }: Ratio): string {
  return Number.isNaN(ofMedians)
    ? '–'
    : `${ofMedians.toFixed(2)} (${low.toFixed(2)}–${high.toFixed(2)})`;
}

function pair(result: KindResult, of: (costs: Cost[]) => number): string {
  return `${number(of(result.present))} / ${number(of(result.against))}`;
}

function median(costs: Cost[], figure: Figure): number {
  return percentile(
    costs.map(cost => cost[figure]),
    0.5,
  );
}
