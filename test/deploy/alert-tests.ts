import { calmMinutes, type Fault } from './alert-faults.ts';

const process = 'job="backoffice",instance="service-1:3001"';

/** Values by series, in the notation of promtool. */
type Series = Record<string, string>;

/** Two scrapes of `/metrics`, a minute apart. */
export interface Recording {
  readonly first: string;
  readonly second: string;
}

/**
 * Extends what two scrapes show to this many minutes: counters go on growing as between them,
 * gauges stay.
 */
export function extend(
  { first, second }: Recording,
  names: readonly string[],
  minutes: number,
): Series {
  const before = readSamples(first);
  const counters = new Set(
    [...second.matchAll(/^# TYPE (\w+) (counter|histogram)$/gm)].map(match => match[1] ?? ''),
  );
  const series: Series = { [`up{${process}}`]: `1+0x${minutes}` };
  for (const [sample, value] of readSamples(second)) {
    const name = nameOf(sample);
    if (!names.includes(name)) continue;
    const growth = counters.has(name.replace(/_(bucket|count|sum)$/, ''))
      ? value - (before.get(sample) ?? 0)
      : 0;
    series[withLabels(sample)] = `${value}+${growth}x${minutes}`;
  }
  return series;
}

/**
 * Replaces the series that a fresh installation lacks or has differently on a busy machine:
 * backups every 5 minutes, and a drill an hour.
 */
export function calm(recorded: Series, minutes: number): Series {
  return replace(recorded, {
    backup_last_success_timestamp_seconds: every(5, minutes),
    backup_last_proved_timestamp_seconds: every(60, minutes),
    backup_tenants_unarchived: `0+0x${minutes}`,
    nodejs_eventloop_lag_p99_seconds: `0.012+0x${minutes}`,
  });
}

/**
 * Faults that take longer than this are evaluated less often, because promtool needs 6 ms for
 * each evaluation.
 */
const maxMinutes = 200;
const slowly = 15;

/**
 * Returns the files for promtool: no alert fires on the calm day or before a fault, and exactly
 * those of it in it.
 */
export function alertTests(
  ruleFile: string,
  base: (minutes: number) => Series,
  faults: readonly Fault[],
): object[] {
  const day = 24 * 60;

  const ofFaults = (chosen: readonly Fault[]): object[] =>
    chosen.map(({ alerts, after, series }) =>
      test(alerts.join(), replace(base(calmMinutes + after), series), [
        firing(calmMinutes - slowly, []),
        firing(calmMinutes + after, alerts),
      ]),
    );

  const calmDay = test('a calm day', base(day), [noneFired(day)]);

  const file = (minutes: number, tests: object[]): object => ({
    rule_files: [ruleFile],
    evaluation_interval: `${minutes}m`,
    tests,
  });

  return [
    file(1, ofFaults(faults.filter(({ after }) => after <= maxMinutes))),
    file(slowly, [calmDay, ...ofFaults(faults.filter(({ after }) => after > maxMinutes))]),
  ];
}

/** Returns a test for promtool: the checks of these series. */
function test(name: string, series: Series, checks: object[]): object {
  return {
    name,
    interval: '1m',
    input_series: Object.entries(series).map(([each, values]) => ({ series: each, values })),
    promql_expr_test: checks,
  };
}

/** Checks that exactly these alerts fire in a minute. */
function firing(minute: number, alerts: readonly string[]): object {
  return {
    expr: 'max by (alertname) (ALERTS{alertstate="firing"})',
    eval_time: `${minute}m`,
    exp_samples: alerts.map(alert => ({ labels: `{alertname="${alert}"}`, value: 1 })),
  };
}

/** Checks that no alert has fired in the day before a minute. */
function noneFired(minute: number): object {
  return {
    expr: 'count_over_time(ALERTS{alertstate="firing"}[1d])',
    eval_time: `${minute}m`,
    exp_samples: [],
  };
}

/** The minutes of a quiet night, in the middle of which its events happen. */
const nightMinutes = 690;

/**
 * Returns the file for promtool: the events of quiet nights fire nothing, and the faults fire
 * their alerts.
 */
export function nightTests(
  ruleFile: string,
  nights: Readonly<Record<string, Series>>,
  faults: readonly Fault[],
): object {
  const up = { [`up{${process}}`]: `1+0x${nightMinutes}` };
  const withUp = (series: Series): Series => replace(up, series);

  return {
    rule_files: [ruleFile],
    evaluation_interval: '1m',
    tests: [
      ...Object.entries(nights).map(([name, series]) =>
        test(name, withUp(series), [noneFired(nightMinutes)]),
      ),
      ...faults.map(({ alerts, after, series }) =>
        test(`${alerts.join()} at night`, withUp(series), [
          firing(calmMinutes, []),
          firing(calmMinutes + after, alerts),
        ]),
      ),
    ],
  };
}

/** Replaces all series of the names that `changed` has. */
function replace(series: Series, changed: Series): Series {
  const names = Object.keys(changed).map(nameOf);
  const kept = Object.entries(series).filter(([each]) => !names.includes(nameOf(each)));
  return Object.fromEntries([
    ...kept,
    ...Object.entries(changed).map(([each, values]) => [withLabels(each), values]),
  ]);
}

function every(period: number, minutes: number): string {
  const times = Math.ceil((minutes + 1) / period);
  return Array.from(
    { length: times },
    (_, number) => `${number * period * 60}+0x${period - 1}`,
  ).join(' ');
}

/** Adds the labels that Prometheus adds to each series of a process. */
function withLabels(series: string): string {
  const own = /\{(.*)\}$/.exec(series)?.[1] ?? '';
  if (own.includes('instance=')) return series.replace('{', '{job="backoffice",');
  return `${nameOf(series)}{${own === '' ? process : `${own},${process}`}}`;
}

function nameOf(series: string): string {
  return series.replace(/\{.*/, '');
}

function readSamples(scrape: string): Map<string, number> {
  const lines = scrape.matchAll(/^([a-z_]\w*(?:\{.*\})?) (\S+)$/gm);
  return new Map([...lines].map(([, sample = '', value]) => [sample, Number(value)]));
}

const keywords = ['and', 'or', 'unless', 'by', 'on', 'le', 'job'];

/**
 * Returns the names of metrics in a query: the words that are neither functions nor labels nor
 * keywords.
 */
export function metricsIn(query: string): string[] {
  const bare = query.replaceAll(/\{[^}]*\}|\[[^\]]*\]|"[^"]*"|\b(by|on) \([^)]*\)/g, ' ');
  const words = [...bare.matchAll(/\b[a-z_][a-z_0-9]*\b(?!\s*\()/g)].map(([word]) => word);
  return [...new Set(words.filter(word => !keywords.includes(word)))];
}
