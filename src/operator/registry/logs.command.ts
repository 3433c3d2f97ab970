import { pageFields } from '../command/list-parts.ts';
import { defineOperation } from '../command/operation.ts';
import { flag, option, optionalArgument, parseTime } from '../command/operation-fields.ts';
import type { ActionSummary } from './list-actions.ts';

const logs = defineOperation({
  name: 'logs',
  help: {
    description:
      'list what operators changed with this command line, and what timers ran: who, what, ' +
      'when and why; the newest first',
    examples: [
      'logs acme',
      'logs --since 2026-11-21 --until 2026-11-22 # who did what that day (UTC)',
      'logs --command purge --since 30d -o wide',
    ],
    more: `Of what a timer runs (backup run, backup drill, backup prune, retention apply, databases prune), the last run of
each day and outcome is listed, for a year: the last one that succeeded, and the last one that failed. Runs with a reason
stay, as all changes do.`,
    json:
      'print one JSON document on stdout: the changes, how many there are, and where the older ' +
      'ones begin',
  },
  fields: {
    slug: optionalArgument('slug', {
      description: 'only those of one tenant; its guid, if another tenant has its slug now',
    }),
    operator: option('<text>', 'only those of this login or host', { kind: 'operator' }),
    command: option(
      '<words>',
      'only this command, such as "user add", or all that begin with its words',
      {
        kind: 'command',
      },
    ),
    since: option('<time>', 'only from then on: 2026-11-22T14:00Z, or 90m, 12h, 7d ago', {
      label: 'From',
      kind: 'time',
      parse: parseTime,
    }),
    until: option('<time>', 'only before then', { label: 'To', kind: 'time', parse: parseTime }),
    all: flag('also commands that were refused, because they were wrong or not confirmed', {
      label: 'Also refused ones',
      isAdvanced: true,
    }),
    ...pageFields('changes', 50),
  },
  effect: 'reads',
  handling: { result: 'list' },
  async run(filter, { installation, output }) {
    const { pageActions } = await import('./list-actions.ts');
    output.page(await pageActions(installation, filter), {
      row: rowOf,
      wide: ({ id, operator, build, finishedAt, error }) => ({
        id,
        operator,
        build,
        finished: finishedAt,
        error,
      }),
      name: ({ id }) => id,
      empty: 'No operator changed anything.',
    });
  },
});

export const operations = [logs];

function rowOf({
  startedAt,
  operator,
  command,
  slug,
  arguments: values,
  state,
  reason,
}: ActionSummary): object {
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
