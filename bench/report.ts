import type { Row, Sample } from './measure.ts';
import { spread } from './spread.ts';
import type { Figure, WorkResult } from './workload.ts';

export interface Finished extends WorkResult {
  readonly name: string;
  readonly title: string;
}

/** The results as Markdown, aligned so that they can be read as they are. */
export function report(finished: Finished[], environment: string[]): string {
  const figures = finished.flatMap(work => work.figures);
  const measured = finished.filter(work => work.rows.length > 0);
  const notes = finished.flatMap(work => work.notes.map(note => `- ${work.name}: ${note}`));
  const parts = [
    environment.map(line => `- ${line}`).join('\n'),
    ...(figures.length > 0 ? ['## What it shows', table(figureHeader, figures.map(figureLine))] : []),
    ...(measured.length > 0
      ? [
          '## Each work',
          legend,
          table(
            rowHeader,
            measured.flatMap(work => work.rows.map(row => rowLine(work, row))),
          ),
        ]
      : []),
    ...(notes.length > 0 ? ['## Seen besides', notes.join('\n')] : []),
  ];
  return parts.join('\n\n');
}

const legend = `Medians over the rounds; ratios are of the same round: median (least–most). Latency in ms, at saturation where connections do
not pause; CPU in µs of each request; memory is what the server's process takes after it, in MB. Errors: refused by
status / cut off.`;

const figureHeader = ['Figure', 'median', 'min', 'max', 'aim', 'met'];

function figureLine({ text, values, aim }: Figure): string[] {
  const { min, median, max } = spread(values);
  const told = !aim ? '–' : 'atLeast' in aim ? `≥ ${aim.atLeast}` : `≤ ${aim.atMost}`;
  return [text, number(median), number(min), number(max), told, aim ? (isMet(values, aim) ? 'yes' : 'no') : '–'];
}

/** Ratios by their median; what is a bound on a count (errors, connections) by the worst round. */
export function isMet(values: number[], aim: NonNullable<Figure['aim']>): boolean {
  const { median, max } = spread(values);
  if ('atLeast' in aim) return median >= aim.atLeast;
  return (values.every(Number.isInteger) ? max : median) <= aim.atMost;
}

const rowHeader = 'Work,who,req/s,× limit,× peer,p50,p99,errors,CPU server,CPU PostgreSQL,CPU Redis,MB'.split(',');

function rowLine({ name, rows }: Finished, row: Row): string[] {
  const median = (of: (sample: Sample) => number): string => number(spread(row.samples.map(of)).median);
  const sum = (of: (sample: Sample) => number): number => row.samples.reduce((all, sample) => all + of(sample), 0);
  return [
    name,
    row.name,
    median(sample => sample.perSecond),
    against(row, rows, 'limit'),
    against(row, rows, 'peer'),
    median(sample => sample.p50),
    median(sample => sample.p99),
    `${sum(sample => sample.statusErrors)} / ${sum(sample => sample.socketErrors)}`,
    median(sample => sample.cpuServer),
    median(sample => sample.cpuPostgres),
    median(sample => sample.cpuRedis),
    median(sample => sample.residentMb),
  ];
}

function against(row: Row, rows: Row[], other: string): string {
  const base = rows.find(({ name }) => name === other);
  if (!base) return '–';
  const ratios = row.samples.map((sample, round) => sample.perSecond / (base.samples[round]?.perSecond ?? Number.NaN));
  const { min, median, max } = spread(ratios);
  return row === base ? '1' : `${number(median)} (${number(min)}–${number(max)})`;
}

function number(value: number): string {
  if (Number.isNaN(value)) return '–';
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function table(header: string[], lines: string[][]): string {
  const widths = header.map((_, column) => Math.max(...[header, ...lines].map(line => line[column]?.length ?? 0)));
  const render = (cells: string[]): string => `| ${cells.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join(' | ')} |`;
  return [render(header), `| ${widths.map(width => '-'.repeat(width)).join(' | ')} |`, ...lines.map(render)].join('\n');
}
