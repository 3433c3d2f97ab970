import type { Command } from 'commander';
import type { ActionSummary } from '../actions/list-actions.ts';
import { parsePositive, withStatements } from './command.ts';
import { jsonOption, type OutputOptions } from './output.ts';
import { parseTime } from './parse-time.ts';
import { printList } from './print-list.ts';

interface LogsOptions extends OutputOptions {
  operator?: string;
  command?: string;
  since?: string;
  all?: boolean;
  limit: number;
}

/** Adds `logs`: what operators changed. */
export function addLogsCommand(program: Command): void {
  program
    .command('logs')
    .description(
      'list the changes that operators made with this command line: who, what, when and why; the newest first',
    )
    .argument('[slug]', 'only those of one tenant')
    .option('--operator <text>', 'only those of this login or host')
    .option('--command <words>', 'only this command, such as "user add", or all that begin with its words')
    .option('--since <time>', 'only later ones: 2026-11-22T14:00Z, or 90m, 12h, 7d ago', parseTime)
    .option('--all', 'also commands that were refused, because they were wrong or not confirmed')
    .option('--limit <n>', 'at most n changes', parsePositive, 50)
    .option(...jsonOption)
    .action(
      withStatements(async (control, slug: string | undefined, { limit, ...options }: LogsOptions) => {
        const { listActions } = await import('../actions/list-actions.ts');
        const { operator, command, since, all } = options;
        const actions = await listActions(control, { slug, operator, command, since, all, limit });
        printList(options, actions, {
          row: rowOf,
          wide: ({ id, operator, build, finishedAt, error }) => ({ id, operator, build, finished: finishedAt, error }),
          name: ({ id }) => id,
          empty: 'No operator changed anything.',
        });
      }),
    );
}

function rowOf({ startedAt, operator, command, slug, arguments: values, state, reason }: ActionSummary): object {
  const what = Object.entries(values).map(([name, value]) => `${name}=${[value].flat().join(',')}`);
  return {
    'time (UTC)': startedAt.slice(0, 16).replace('T', ' '),
    who: operator.replace(/@.*/, ''),
    command: [command, slug].filter(Boolean).join(' '),
    state,
    reason,
    with: what.join(' ') || null,
  };
}
