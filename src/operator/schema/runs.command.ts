import { pageFields } from '../command/list-parts.ts';
import { defineOperation } from '../command/operation.ts';
import { optionalArgument, parsePositive } from '../command/operation-fields.ts';
import { fieldsText, tableText } from '../command/text-table.ts';
import type { FleetStatus } from './fleet-status.ts';
import type { RunSummary } from './list-runs.ts';

const status = defineOperation({
  name: 'status',
  help: {
    description:
      'show the fleet by schema version, state and health, and the outcome of the last migration run',
    examples: ['status', 'status --watch'],
  },
  effect: 'reads',
  handling: { repeats: 'sometimes' },
  async run(_, { installation, output }) {
    const { fleetStatus } = await import('./fleet-status.ts');
    const found = await fleetStatus(installation);
    output.result(found, () => textOf(found));
  },
});

function textOf({
  head,
  fleet,
  health,
  checkedAt,
  failing,
  lastRun,
  formerBuilds,
}: FleetStatus): string {
  const rows = fleet.map(row => ({
    ...row,
    schemaVersion: row.schemaVersion ?? 'between versions',
  }));

  const counts = Object.entries(health).map(([name, count]) => `${count} ${name}`);
  const looked = checkedAt === null ? 'doctor has never looked' : `doctor looked ${checkedAt}`;
  const lines = [`This build: ${head}`, '', tableText(rows, 'There is no tenant.')];

  if (fleet.length > 0) {
    lines.push('', fieldsText({ Health: `${counts.join(', ')}; ${looked}` }));
  }

  if (lastRun) {
    const { id, state, requestedBy, startedAt, outcomes } = lastRun;
    const counts = Object.entries(outcomes).map(([name, count]) => `${count} ${name}`);
    lines.push(
      '',
      fieldsText({
        'Last run': `${id}, ${state}, ${startedAt} by ${requestedBy}: ${counts.join(', ')}`,
      }),
    );
  }

  if (failing.length > 0) {
    lines.push(
      '',
      'The last migration of these tenants failed:',
      '',
      tableText(failing, ''),
      '',
      'When the cause is gone, migrate them again:',
      '  bin/backoffice migrate --retry-failed',
    );
  }

  if (formerBuilds.length > 0) {
    const rows = formerBuilds.map(({ head, ...process }) => ({
      ...process,
      head: head ?? 'starts',
    }));
    lines.push(
      '',
      'These processes have a former build, or start. Until they have this one, requests that',
      'would make programs or their keys get 503 migration_pending:',
      '',
      tableText(rows, ''),
    );
  }

  return lines.join('\n');
}

const run = optionalArgument<number>('run', {
  description: 'its number',
  otherwise: 'the newest',
  parse: parsePositive,
});

const list = defineOperation({
  name: 'runs list',
  help: {
    description: 'list the migration runs, the newest first',
    examples: ['runs list --limit 5'],
    json: 'print one JSON document on stdout: the runs, how many there are, and where the older ones begin',
  },
  fields: pageFields('runs', 20),
  effect: 'reads',
  handling: { result: 'list' },
  async run(part, { installation, output }) {
    const { pageRuns } = await import('./list-runs.ts');
    output.page(await pageRuns(installation, part), {
      row: ({ outcomes, requestedBy, finishedAt, ...run }) => ({
        ...run,
        outcomes: outcomesText(outcomes),
      }),
      wide: ({ requestedBy, finishedAt }) => ({ by: requestedBy, finished: finishedAt }),
      name: ({ id }) => id,
      empty: 'There was no migration run.',
    });
  },
});

const show = defineOperation({
  name: 'runs show',
  help: {
    description:
      'show one migration run, and what it did with each tenant; those that failed first',
    examples: ['runs show # the newest run', 'runs show 12'],
  },
  fields: { run },
  effect: 'reads',
  async run({ run: id }, { installation, output }) {
    const { readRun, runOutcomes } = await import('./list-runs.ts');
    const found = await readRun(installation, id);
    const tenants = await runOutcomes(installation, found.id);
    output.result(
      { ...found, tenants },
      () => `${runText(found)}\n\n${tableText(tenants, 'It had no tenant.')}`,
    );
  },
});

const watch = defineOperation({
  name: 'runs watch',
  help: {
    description:
      'show a migration run every 2 seconds until it ends; exit code 1 if it has not succeeded',
    examples: ['runs watch'],
    json: 'print one JSON line on stdout every 2 seconds',
  },
  fields: { run },
  effect: 'reads',
  handling: { repeats: 'always' },
  async run({ run: id }, { installation, output }) {
    const { readRun, runOutcomes } = await import('./list-runs.ts');
    const found = await readRun(installation, id);
    const failed = (await runOutcomes(installation, found.id)).filter(
      each => each.state === 'failed',
    );
    output.part(
      { ...found, failed },
      () => `${runText(found)}\n\n${tableText(failed, 'No tenant failed.')}`,
    );
    return found.state === 'running' ? 'again' : found.state === 'succeeded';
  },
});

export const operations = [list, show, watch, status];

function runText({ outcomes, ...run }: RunSummary): string {
  return fieldsText({ ...run, outcomes: outcomesText(outcomes) });
}

function outcomesText(outcomes: RunSummary['outcomes']): string {
  return (
    Object.entries(outcomes)
      .map(([state, count]) => `${count} ${state}`)
      .join(', ') || '–'
  );
}
