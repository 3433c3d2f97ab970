import type { CaseResult, Sample } from './measure.ts';
import { spread } from './spread.ts';
import { type Figure, ratios, type WorkloadResult } from './workload.ts';

export interface Finished extends WorkloadResult {
  readonly name: string;
  readonly title: string;
}

/** The results of a run, and the conditions of it. */
export interface Results {
  readonly environment: string[];
  readonly finished: Finished[];
}

/** Returns the results as Markdown with aligned columns, so that the source is readable too. */
export function report(finished: Finished[], environment: string[]): string {
  const figures = finished.flatMap(workload => workload.figures);
  const measured = finished.filter(workload => workload.results.length > 0);
  const noteLines = finished.flatMap(({ name, notes }) => notes.map(note => `- ${name}: ${note}`));

  const parts = [
    environment.map(line => `- ${line}`).join('\n'),
    ...(figures.length > 0 ? ['## Figures', table(figureHeader, figures.map(figureLine))] : []),
    ...(measured.length > 0
      ? [
          '## Workloads',
          legend,
          table(
            caseHeader,
            measured.flatMap(workload =>
              workload.results.map(result => caseLine(workload, result)),
            ),
          ),
        ]
      : []),
    ...(noteLines.length > 0 ? ['## Notes', noteLines.join('\n')] : []),
  ];

  return parts.join('\n\n');
}

const legend = `Cases: *service*, this project; *raw-pg*, the raw-pg baseline (bare node:http and pg, one tenant, no
authentication); *raw-pg-audited*, the same, but it writes the audit entry of the service in the statement that creates
the record; *fastify*, the Fastify reference (a hand-written server for one tenant); *bare-http* and *bare-koa*, which
only send stored bytes; *bare-pool*, a minimal connection budget over many databases.

Medians over the rounds; ratios compare values of the same round: median (min–max). Latency in ms, at saturation where
connections do not pause; CPU in µs per request; memory of the server process after the last measurement, in MB. Errors:
error responses / failed connections.`;

const figureHeader = ['Figure', 'median', 'min', 'max', 'aim', 'met'];

function figureLine({ text, values, aim }: Figure): string[] {
  const { min, median, max } = spread(values);
  const aimText = !aim ? '–' : 'atLeast' in aim ? `≥ ${aim.atLeast}` : `≤ ${aim.atMost}`;
  return [
    text,
    number(median),
    number(min),
    number(max),
    aimText,
    aim ? (isMet(values, aim) ? 'yes' : 'no') : '–',
  ];
}

/**
 * Compares the median with the aim; for an upper bound on counts (errors, connections), the
 * worst round.
 */
function isMet(values: number[], aim: NonNullable<Figure['aim']>): boolean {
  const { median, max } = spread(values);
  if ('atLeast' in aim) return median >= aim.atLeast;
  return (values.every(Number.isInteger) ? max : median) <= aim.atMost;
}

const caseHeader =
  'Workload,case,req/s,× raw-pg,× fastify,p50,p99,errors,CPU server,CPU PostgreSQL,CPU Redis,MB'.split(
    ',',
  );

function caseLine({ name, results }: Finished, result: CaseResult): string[] {
  const median = (of: (sample: Sample) => number): string =>
    number(spread(result.samples.map(of)).median);
  const sum = (of: (sample: Sample) => number): number =>
    result.samples.reduce((all, sample) => all + of(sample), 0);

  return [
    name,
    result.name,
    median(sample => sample.perSecond),
    ratioTo(result, results, 'raw-pg'),
    ratioTo(result, results, 'fastify'),
    median(sample => sample.p50),
    median(sample => sample.p99),
    `${sum(sample => sample.statusErrors)} / ${sum(sample => sample.socketErrors)}`,
    median(sample => sample.cpuServer),
    median(sample => sample.cpuPostgres),
    median(sample => sample.cpuRedis),
    median(sample => sample.residentMb),
  ];
}

function ratioTo(result: CaseResult, results: CaseResult[], base: string): string {
  if (!results.some(({ name }) => name === base)) return '–';
  const { min, median, max } = spread(ratios(results, result.name, base));
  return result.name === base ? '1' : `${number(median)} (${number(min)}–${number(max)})`;
}

export function number(value: number): string {
  if (Number.isNaN(value)) return '–';
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 100
    ? value.toFixed(0)
    : Math.abs(value) >= 10
      ? value.toFixed(1)
      : value.toFixed(2);
}

export function table(header: string[], lines: string[][]): string {
  const widths = header.map((_, column) =>
    Math.max(...[header, ...lines].map(line => line[column]?.length ?? 0)),
  );
  const render = (cells: string[]): string =>
    `| ${cells.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(' | ')} |`;
  return [
    render(header),
    `| ${widths.map(width => '-'.repeat(width)).join(' | ')} |`,
    ...lines.map(render),
  ].join('\n');
}
