import type { Command } from 'commander';
import type { RunSummary } from '../migrations/list-runs.ts';
import { parsePositive, withStatements } from './command.ts';
import { jsonOption, type OutputOptions, printPart, printResult } from './output.ts';
import { printList } from './print-list.ts';
import { fieldsText, tableText } from './text-table.ts';
import { watch } from './watch.ts';

/** Adds the commands of `runs`: migration runs. */
export function addRunsCommands(program: Command): void {
  const runs = program.command('runs').description('migration runs over the fleet');
  runs
    .command('list')
    .description('list the migration runs, the newest first')
    .option('--limit <n>', 'at most n runs', parsePositive, 20)
    .option(...jsonOption)
    .action(
      withStatements(async (control, { limit, ...options }: OutputOptions & { limit: number }) => {
        const { listRuns } = await import('../migrations/list-runs.ts');
        printList(options, await listRuns(control, limit), {
          row: ({ outcomes, requestedBy, finishedAt, ...run }) => ({ ...run, outcomes: outcomesText(outcomes) }),
          wide: ({ requestedBy, finishedAt }) => ({ by: requestedBy, finished: finishedAt }),
          name: ({ id }) => id,
          empty: 'There was no migration run.',
        });
      }),
    );
  runs
    .command('show')
    .description('show one migration run, and what it did with each tenant; those that failed first')
    .argument('[run]', 'its number (default: the newest)', parsePositive)
    .option(...jsonOption)
    .action(
      withStatements(async (control, id: number | undefined, options: OutputOptions) => {
        const { readRun, runOutcomes } = await import('../migrations/list-runs.ts');
        const run = await readRun(control, id);
        const tenants = await runOutcomes(control, run.id);
        printResult(
          options,
          { ...run, tenants },
          () => `${runText(run)}\n\n${tableText(tenants, 'It had no tenant.')}`,
        );
      }),
    );
  runs
    .command('watch')
    .description('show a migration run every 2 seconds until it ends; exit code 1 if it has not succeeded')
    .argument('[run]', 'its number (default: the newest)', parsePositive)
    .option('--json', 'print one JSON line on stdout every 2 seconds')
    .action(
      withStatements(async (control, id: number | undefined, options: OutputOptions) => {
        const { readRun, runOutcomes } = await import('../migrations/list-runs.ts');
        let state = '';
        await watch(async () => {
          const run = await readRun(control, id);
          const failed = (await runOutcomes(control, run.id)).filter(each => each.state === 'failed');
          printPart(options, { ...run, failed }, () => `${runText(run)}\n\n${tableText(failed, 'No tenant failed.')}`);
          state = run.state;
          return state === 'running';
        });
        return state === 'succeeded' || state === 'running';
      }),
    );
}

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
