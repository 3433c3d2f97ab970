import { defineList } from '../command/define-list.ts';
import { flag, option, optionalArgument, parsePositive, parseTime } from '../command/operation-fields.ts';
import type { ActionSummary } from './list-actions.ts';

const logs = defineList({
  name: 'logs',
  description:
    'list what operators changed with this command line, and what timers ran: who, what, when and why; the newest first',
  fields: {
    slug: optionalArgument('slug', { description: 'only those of one tenant' }),
    operator: option('<text>', 'only those of this login or host'),
    command: option('<words>', 'only this command, such as "user add", or all that begin with its words'),
    since: option('<time>', 'only later ones: 2026-11-22T14:00Z, or 90m, 12h, 7d ago', { parse: parseTime }),
    all: flag('also commands that were refused, because they were wrong or not confirmed'),
    limit: option('<n>', 'at most n changes', { parse: parsePositive, default: 50 }),
  },
  examples: ['logs acme', 'logs --command purge --since 30d -o wide'],
  help: `Of what a timer runs (backup run, backup drill, backup prune, retention apply, databases prune), the last run of
each day and outcome is listed, for a year: the last one that succeeded, and the last one that failed. Runs with a --reason
stay, as all changes do.`,
  async items(filter, { installation }) {
    const { listActions } = await import('./list-actions.ts');
    return listActions(installation, filter);
  },
  row: rowOf,
  wide: ({ id, operator, build, finishedAt, error }) => ({ id, operator, build, finished: finishedAt, error }),
  nameOf: ({ id }) => id,
  empty: 'No operator changed anything.',
});

export const operations = [logs];

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
