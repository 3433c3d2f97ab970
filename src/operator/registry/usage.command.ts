import { csvRow } from '../../lib/http/request/csv.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { snakeCase } from '../../lib/runtime/casing.ts';
import { defineOperation } from '../command/operation.ts';
import { flag, option, optionalArgument, parseTime } from '../command/operation-fields.ts';
import { sizeText } from '../command/texts.ts';
import { periods, type TenantUsageSummary } from './read-usage.ts';

const hourMs = 3_600_000;

const usage = defineOperation({
  name: 'usage',
  help: {
    description:
      'show what tenants used: requests, writes, bytes sent, time and size of their databases',
    examples: [
      'usage # all tenants, this month',
      'usage acme --from 7d --by hour',
      'usage --from 2026-10-01 --to 2026-11-01 --csv # a month, for invoices',
    ],
    more: `Hours, days and months are those of UTC, and are kept for 100 days. Requests are those of authenticated users and
clients, refused ones with status 429 or 503 included. The newest requests are missing for up to a minute, and those of
the last minute of a killed process for good. doctor measures the databases.`,
  },
  fields: {
    slug: optionalArgument('slug', { description: 'only one tenant' }),
    from: option('<time>', 'from this hour on', {
      kind: 'time',
      parse: parseTime,
      otherwise: 'this month',
    }),
    to: option('<time>', 'until before this hour', {
      kind: 'time',
      parse: parseTime,
      otherwise: 'this hour included',
    }),
    by: option('<period>', 'sums', {
      label: 'Sums by',
      choices: periods,
      otherwise: 'month, and of one tenant day',
    }),
    csv: flag('print CSV, with exact numbers', { label: 'CSV', isAdvanced: true }),
  },
  effect: 'reads',
  handling: { result: 'list' },
  async run({ slug, csv, ...values }, { installation, output }) {
    if (csv && output.wantsDocuments) {
      throw new OperatorError('Give either --csv or --json', { usage: true });
    }

    const { readUsage } = await import('./read-usage.ts');
    const now = new Date();
    const month = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth()));
    const nextHour = new Date(now.getTime() + hourMs);
    const { from = month.toISOString(), to = nextHour.toISOString() } = values;
    if (from > to) throw new OperatorError('Give a --to after --from', { usage: true });

    const by = values.by ?? (slug === undefined ? 'month' : 'day');
    const found = await readUsage(installation, { slug, from, to }, by);
    if (csv) return output.result(found, () => csvText(found));

    return output.list(found, {
      row: rowOf,
      wide: ({ guid }) => ({ guid }),
      name: ({ tenant }) => tenant,
      empty: 'No tenant used anything in this time.',
    });
  },
});

export const operations = [usage];

function rowOf(usage: TenantUsageSummary): object {
  const { tenant, period, requests, refused, writes, responseBytes, databaseMs } = usage;
  const { databaseBytes, databaseMeasuredAt } = usage;

  return {
    tenant,
    period,
    requests,
    refused,
    writes,
    sent: sizeText(responseBytes),
    'database time': `${(databaseMs / 1_000).toFixed(1)} s`,
    'database size': databaseBytes === null ? null : sizeText(databaseBytes),
    measured: databaseMeasuredAt?.slice(0, 'YYYY-MM-DD'.length) ?? null,
  };
}

const csvFields = [
  ...(['tenant', 'guid', 'period', 'requests', 'refused', 'writes'] as const),
  ...(['responseBytes', 'databaseMs', 'databaseBytes', 'databaseMeasuredAt'] as const),
];

function csvText(usage: readonly TenantUsageSummary[]): string {
  const rows = usage.map(each => csvFields.map(field => each[field]));
  return [csvFields.map(snakeCase), ...rows].map(csvRow).join('').trimEnd();
}
