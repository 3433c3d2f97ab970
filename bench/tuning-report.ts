import { type Finished, number, type Results, table } from './report.ts';
import { spread } from './spread.ts';
import { samplesOf } from './workload.ts';

const header = [
  'Workload',
  'case',
  'req/s, defaults',
  'req/s, tuned',
  'tuned / defaults',
  'p99, defaults',
  'p99, tuned',
];

/** Returns what tuning PostgreSQL gains, as Markdown: medians of both runs, which the machine did one after the other. */
export function tuningReport(finished: Finished[], tuned: Results): string {
  const lines = tuned.finished.flatMap(({ name, results }) => {
    const defaults = finished.find(workload => workload.name === name)?.results ?? [];
    return results.map(result => {
      const [before, after] = [defaults, results].map(each => {
        const samples = samplesOf(each, result.name);
        const median = (of: 'perSecond' | 'p99'): number => spread(samples.map(sample => sample[of])).median;
        return { perSecond: median('perSecond'), p99: median('p99') };
      }) as [Medians, Medians];
      const gain = number(after.perSecond / before.perSecond);
      return [
        name,
        result.name,
        number(before.perSecond),
        number(after.perSecond),
        gain,
        number(before.p99),
        number(after.p99),
      ];
    });
  });
  const settings = tuned.environment.find(line => line.includes('PostgreSQL')) ?? '';
  return ['## What tuning gains', `- tuned: ${settings}`, table(header, lines)].join('\n\n');
}

interface Medians {
  perSecond: number;
  p99: number;
}
