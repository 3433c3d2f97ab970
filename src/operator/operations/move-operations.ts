import { OperatorError } from '../../operator-error.ts';
import type { MoveSummary } from '../move/read-moves.ts';
import { moveFields, moveInterrupt, moveJson, moveRequest, observeMove, returnMove } from './move-results.ts';
import { defineOperation } from './operation.ts';
import { argument, flag, option, optionalArgument } from './operation-fields.ts';
import { fieldsText, tableText } from './text-table.ts';

const move = defineOperation({
  name: 'move',
  description: 'move a tenant to another PostgreSQL server; its requests wait meanwhile, and do not fail',
  fields: {
    slug: optionalArgument('slug', { neededUnless: 'back' }),
    to: option('<server>', 'the name of the server', { kind: 'server', neededUnless: 'back' }),
    back: flag('move it back to the server that it was moved from'),
    ...moveFields,
  },
  examples: [
    'move acme --to second --dry-run # show what would be moved',
    'move acme --to second # move a tenant',
    'move acme --back # move it back, with everything that was written since',
  ],
  help: `The data is copied while the tenant is served. Then its requests wait while what has changed meanwhile is copied and
compared; cached responses are served all the time. At the end every process uses the new database. Requests do not
fail as long as the pause is shorter than ACQUIRE_TIMEOUT_MS. The old database is kept, closed, for --keep hours.

A move that fails or is killed leaves the tenant in the database that it had. Run the command again: it goes on.`,
  access: 'installation',
  effect: 'changes',
  json: moveJson,
  interrupt: moveInterrupt,
  async plan(values, { installation }) {
    const { slug, to } = direction(values);
    const { planMove } = await import('../move/plan-move.ts');
    const { reversibleTarget } = await import('../move/moves.ts');
    const plan = await planMove(installation, slug, to ?? (await reversibleTarget(installation, slug)));
    return { document: plan, text: () => fieldsText(plan) };
  },
  async run(values, context) {
    const { installation, output } = context;
    const { slug, to } = direction(values);
    const { moveBack, moveTenant } = await import('../move/moves.ts');
    const request = moveRequest(values);
    const observers = observeMove(context);
    const moved =
      to === undefined
        ? await moveBack(installation, slug, request, observers)
        : await moveTenant(installation, slug, { ...request, to }, observers);
    returnMove(output, moved);
  },
});

const list = defineOperation({
  name: 'move list',
  description: 'list the moves, the newest first',
  fields: {},
  examples: ['move list'],
  access: 'statements',
  effect: 'reads',
  isList: true,
  async run(_, { installation, output }) {
    const { listMoves } = await import('../move/read-moves.ts');
    output.list(await listMoves(installation), {
      row: moveRow,
      wide: ({ oldDatabase }) => ({ 'old database': oldDatabase }),
      name: ({ id }) => id,
      empty: 'No tenant was moved.',
    });
  },
});

const resume = defineOperation({
  name: 'move resume',
  description: 'go on with the unfinished move of a tenant',
  fields: { slug: argument('slug') },
  examples: ['move resume acme'],
  help: 'The tenant is back in service within a second, while the data is copied again.',
  access: 'installation',
  effect: 'changes',
  json: moveJson,
  interrupt: moveInterrupt,
  async run({ slug }, context) {
    const { resumeMove } = await import('../move/moves.ts');
    returnMove(context.output, await resumeMove(context.installation, slug, 'switch', observeMove(context)));
  },
});

const abort = defineOperation({
  name: 'move abort',
  description: 'give up the unfinished move of a tenant, and drop the new database',
  fields: { slug: argument('slug') },
  examples: ['move abort acme'],
  access: 'installation',
  effect: 'changes',
  async plan({ slug }, { installation }) {
    const { readUnfinishedMove } = await import('../move/read-moves.ts');
    const { from, to, newDatabase, state } = await readUnfinishedMove(installation, slug);
    if (state === 'verified')
      return {
        document: { slug, server: to, dropped: null, state: 'planned' },
        text: () => `Nothing would be dropped: ${slug} has its new database on ${to} already.`,
      };
    return {
      document: { slug, server: to, dropped: newDatabase, state: 'planned' },
      text: () => `Database ${newDatabase} on ${to} would be dropped. ${slug} stays on ${from}.`,
    };
  },
  async run({ slug }, { installation, output }) {
    const { resumeMove } = await import('../move/moves.ts');
    const moved = await resumeMove(installation, slug, 'abort');
    output.result(moved, () => `The move of ${slug} is aborted. It is served by ${moved.from}, as before.`);
  },
});

const settle = defineOperation({
  name: 'move settle',
  description: 'drop the old databases of moved tenants whose time has passed; with a slug, those of a tenant at once',
  fields: { slug: optionalArgument('slug') },
  examples: ['move settle # all whose time has passed', 'move settle acme'],
  access: 'installation',
  effect: 'destroys',
  async plan({ slug }, { installation }) {
    const { movesToSettle } = await import('../move/read-moves.ts');
    const rows = (await movesToSettle(installation, slug)).map(settledRow);
    const consequence = 'can not be moved back any more: its old database will be dropped';
    return {
      document: rows,
      text: () => tableText(rows, 'There is no old database to drop.'),
      confirm: slug === undefined ? undefined : { name: slug, consequence },
    };
  },
  async run({ slug }, { installation, output }) {
    const { settleMoves } = await import('../move/moves.ts');
    const { slugsToSettle } = await import('../move/read-moves.ts');
    const settled: MoveSummary[] = [];
    for (const each of slug === undefined ? await slugsToSettle(installation) : [slug])
      settled.push(...(await settleMoves(installation, each)));
    output.result(settled, () => tableText(settled.map(settledRow), 'There was no old database to drop.'));
  },
});

export const operations = [move, list, resume, abort, settle];

/** Returns where a tenant moves; without `to`, back. */
function direction({ slug, to, back }: { slug: string | undefined; to: string | undefined; back: boolean }) {
  if (slug === undefined || (to === undefined) !== back)
    throw new OperatorError('Name a tenant, and give either --to <server> or --back', { usage: true });
  return { slug, to };
}

function moveRow({ id, slug, from, to, state, pauseMs, reversibleUntil, error }: MoveSummary): object {
  const pause = pauseMs === null ? '–' : `${pauseMs} ms`;
  return { id, slug, from, to, state, pause, 'back until': reversibleUntil, error };
}

function settledRow({ slug, from, oldDatabase }: MoveSummary) {
  return { slug, server: from, dropped: oldDatabase };
}
