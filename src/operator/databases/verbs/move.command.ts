import { OperatorError } from '../../../lib/log/operator-error.ts';
import { defineChange } from '../../command/define-change.ts';
import { defineOperation } from '../../command/operation.ts';
import { argument, flag, option } from '../../command/operation-fields.ts';
import { sizeText } from '../../command/texts.ts';
import { roomText } from '../copy/room.ts';
import {
  leaveSchemas,
  moveFields,
  moveInterrupt,
  moveJson,
  moveRequest,
  observeMoves,
  observeRun,
  returnMove,
} from './move-results.ts';
import type { MovePlan } from './plan-move.ts';
import type { Choice } from './prune-databases.ts';
import { prunedText } from './pruned-text.ts';

const move = defineOperation({
  name: 'move',
  help: {
    description:
      'move a tenant to another PostgreSQL server; its requests wait meanwhile, and do not fail',
    examples: [
      'move acme --to second --dry-run # show what would be moved',
      'move acme --to second # move a tenant',
      'move acme --back # move it back, with everything that was written since',
    ],
    more: `The data is copied while the tenant is served. Then its requests wait while what has changed meanwhile is copied and
compared; cached responses are served all the time. At the end every process uses the new database. Requests do not
fail as long as the pause is shorter than ACQUIRE_TIMEOUT_MS. The old database is kept, closed, for --keep hours.

A move that fails or is killed leaves the tenant in the database that it had. Run the command again: it begins anew.`,
    json: moveJson,
  },
  fields: {
    slug: argument('slug'),
    to: option('<server>', 'the name of the server', {
      label: 'To server',
      kind: 'server',
      neededUnless: 'back',
    }),
    back: flag('to the server that it was moved from', { label: 'Move it back', unless: ['to'] }),
    ...moveFields,
  },
  effect: 'changes',
  handling: { isTraced: true, interrupt: moveInterrupt },
  async plan(values, { installation }) {
    const { slug, to } = direction(values);
    const { planMove } = await import('./plan-move.ts');
    const { reversibleTarget } = await import('./move-tenant.ts');
    const plan = await planMove(
      installation,
      slug,
      to ?? (await reversibleTarget(installation, slug)),
      values.leaveSchemas,
    );
    return { document: plan, text: () => movePlanText(plan), steady: steadyText(plan) };
  },
  async run(values, context) {
    const { installation, output } = context;
    const { slug, to } = direction(values);
    const { moveTenant, reversibleTarget } = await import('./move-tenant.ts');
    const isBack = to === undefined;
    const request = {
      ...moveRequest(values),
      to: to ?? (await reversibleTarget(installation, slug)),
      isBack,
    };

    returnMove(
      output,
      await observeMoves(context, observers => moveTenant(installation, slug, request, observers)),
    );
  },
});

const settle = defineChange({
  name: 'move settle',
  help: {
    description:
      'drop the old database of a moved tenant at once; it cannot be moved back any more',
    examples: ['move settle acme'],
  },
  fields: { slug: argument('slug'), leaveSchemas },
  effect: 'destroys',
  async change({ slug, leaveSchemas }, context, isDryRun) {
    const { planDrops, pruneDatabases, requireNoRefusal } = await import('./prune-databases.ts');
    const isOld: Choice = ({ keptBy }) => keptBy === 'move';
    const { installation } = context;
    const request = { isChosen: isOld, leaveSchemas };
    const document = isDryRun
      ? await planDrops(installation, slug, request)
      : await pruneDatabases(installation, slug, observeRun(context), request);
    if (isDryRun) requireNoRefusal(document);
    const text = prunedText(document, 'There is no old database to drop.');
    const consequence = 'can not be moved back any more: its old database will be dropped';
    return { document, plan: text, confirm: { name: slug, consequence }, done: text };
  },
});

export const operations = [move, settle];

/** Returns the part of a plan that neither the writes nor the sessions of a minute change. */
function steadyText({ slug, from, to, leaves, withoutIndexes }: MovePlan): string {
  return JSON.stringify({ slug, from, to, leaves, withoutIndexes });
}

/** Formats a plan. What somebody else has made in the database stands below it. */
function movePlanText({ leaves, withoutIndexes, others, room, ...plan }: MovePlan): string {
  const { slug, from, to, bytes, aheadBytes, maxPauseMs, sessions } = plan;
  const lines = [
    `${slug} would move from ${from} to ${to}: ${sizeText(bytes)}, of which ${sizeText(aheadBytes)} of logs are copied before its requests wait.`,
    `Its requests would wait for ${maxPauseMs} ms if every other table changed during the first copy. Open sessions in its database: ${sessions}.`,
    room ? roomText(room) : '',
    others.length > 0
      ? `Connected to it: ${others.join(', ')}. Everything is copied again while requests wait, ` +
        'unless --end-sessions.'
      : '',
    leaves.length > 0
      ? `Stays in the old database, and is dropped with it: ${leaves.join(', ')}.`
      : '',
    withoutIndexes.length > 0
      ? 'Moves with its rows, but without defaults, constraints and indexes: ' +
        `${withoutIndexes.join(', ')}.`
      : '',
  ];

  return lines.filter(Boolean).join('\n');
}

/** Returns where a tenant moves; without `to`, back. */
function direction({ slug, to, back }: { slug: string; to: string | undefined; back: boolean }) {
  if ((to === undefined) !== back) {
    throw new OperatorError('Give either --to <server> or --back', { usage: true });
  }
  return { slug, to };
}
