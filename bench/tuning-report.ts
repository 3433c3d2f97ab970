import type { Sample } from './measure.ts';
import { type Finished, number, type Results, table } from './report.ts';
import { spread } from './spread.ts';
import { samplesOf } from './workload.ts';

const minShare = 0.9;
const header = [
  'Workload',
  'case',
  'req/s, defaults',
  'req/s, tuned',
  'defaults / tuned',
  `≥ ${minShare}`,
  'p99, defaults',
  'p99, tuned',
];

/**
 * Returns what tuning PostgreSQL gains, as Markdown: medians of the measurements, which both
 * servers had in turn.
 */
export function tuningReport(finished: Finished[], tuned: Results): string {
  const lines = tuned.finished.flatMap(({ name, results }) => {
    const defaults = finished.find(workload => workload.name === name)?.results ?? [];

    return results.map(result => {
      const [before, after] = [samplesOf(defaults, result.name), result.samples];
      const median = (samples: typeof before, of: 'perSecond' | 'p99'): string =>
        number(spread(samples.map(sample => sample[of])).median);
      const [rates, tunedRates] = [before.map(rateOf), after.map(rateOf)];
      const share = spread(rates.map((rate, round) => rate / (tunedRates[round] ?? Number.NaN)));
      const isService = result.name.startsWith('service');

      return [
        name,
        result.name,
        median(before, 'perSecond'),
        median(after, 'perSecond'),
        `${number(share.median)} (${number(share.min)}–${number(share.max)})`,
        isService ? (share.median >= minShare ? 'yes' : 'no') : '–',
        median(before, 'p99'),
        median(after, 'p99'),
      ];
    });
  });

  const settings = tuned.environment.find(line => line.includes('PostgreSQL')) ?? '';
  return ['## What tuning gains', `- tuned: ${settings}`, table(header, lines)].join('\n\n');
}

/**
 * Requests per second; of a case that sends one request at a time and has no rate, those that
 * its p50 permits.
 */
function rateOf({ perSecond, p50 }: Sample): number {
  return Number.isNaN(perSecond) ? 1_000 / p50 : perSecond;
}
