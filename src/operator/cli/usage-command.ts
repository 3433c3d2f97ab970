import { type Command, Option } from 'commander';
import { csvRow } from '../../http/csv.ts';
import { periods, type TenantUsageSummary, type UsageGap } from '../usage/read-usage.ts';
import { withStatements } from './command.ts';
import { jsonOption, type OutputOptions, printResult, printWarning } from './output.ts';
import { parseTime } from './parse-time.ts';
import { printList } from './print-list.ts';
import { sizeText } from './size-text.ts';

interface UsageOptions extends OutputOptions {
  from?: string;
  to?: string;
  by?: (typeof periods)[number];
  csv?: boolean;
}

const help = `
Hours, days and months are those of UTC, and are kept for 100 days. Requests are those of authenticated users and
clients, refused ones with status 429 or 503 included. The newest requests are missing for up to 10 seconds.`;

const maxWarnings = 5;
const hourMs = 3_600_000;

/** Adds `usage`: what tenants used. */
export function addUsageCommand(program: Command): void {
  program
    .command('usage')
    .description('show what tenants used: requests, writes, bytes sent, time and size of their databases')
    .argument('[slug]', 'only one tenant')
    .option('--from <time>', 'from this hour on: 2026-11-22T14:00Z, or 12h, 7d ago (default: this month)', parseTime)
    .option('--to <time>', 'until before this hour (default: this hour included)', parseTime)
    .addOption(new Option('--by <period>', 'sums (default: month, and of one tenant day)').choices(periods))
    .addOption(new Option('--csv', 'print CSV, with exact numbers').conflicts('json'))
    .option(...jsonOption)
    .addHelpText('after', help)
    .action(
      withStatements(async (control, slug: string | undefined, options: UsageOptions) => {
        const { readGaps, readUsage } = await import('../usage/read-usage.ts');
        const now = new Date();
        const month = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth()));
        const nextHour = new Date(now.getTime() + hourMs);
        const { from = month.toISOString(), to = nextHour.toISOString() } = options;
        const by = options.by ?? (slug === undefined ? 'month' : 'day');
        const usage = await readUsage(control, { slug, from, to }, by);
        warnOfGaps(await readGaps(control, { slug, from, to }));
        if (options.csv) return printResult(options, usage, () => csvText(usage));
        return printList(options, usage, {
          row: rowOf,
          wide: ({ guid }) => ({ guid }),
          name: ({ tenant }) => tenant,
          empty: 'No tenant used anything in this time.',
        });
      }),
    );
}

function rowOf(usage: TenantUsageSummary): object {
  const { tenant, period, requests, refused, writes, responseBytes, databaseMs, databaseBytes } = usage;
  return {
    ...{ tenant, period, requests, refused, writes },
    sent: sizeText(responseBytes),
    'database time': `${(databaseMs / 1_000).toFixed(1)} s`,
    'database size': databaseBytes === null ? null : sizeText(databaseBytes),
  };
}

function csvText(usage: readonly TenantUsageSummary[]): string {
  const heading = ['tenant', 'guid', 'period', 'requests', 'refused', 'writes', 'response_bytes', 'database_ms'];
  const rows = usage.map(each => [
    ...[each.tenant, each.guid, each.period, each.requests, each.refused, each.writes],
    ...[each.responseBytes, each.databaseMs, each.databaseBytes],
  ]);
  return [[...heading, 'database_bytes'], ...rows].map(csvRow).join('').trimEnd();
}

function warnOfGaps(gaps: readonly UsageGap[]): void {
  for (const gap of gaps.slice(0, maxWarnings)) printWarning(gapText(gap));
  if (gaps.length > maxWarnings) printWarning(`${gaps.length - maxWarnings} more processes have such a gap`);
}

function gapText({ host, pid, countedUntil, isRunning }: UsageGap): string {
  const name = `Process ${pid} on ${host}`;
  if (isRunning)
    return `${name} could not store its usage after ${countedUntil}: it stays in memory until the control database accepts it`;
  return (
    `${name} ended without its last batch: its requests after ${countedUntil} are missing, those of at most 10 s ` +
    'while it reached the control database'
  );
}
