import { OperatorError } from '../../log/operator-error.ts';
import { defineOperation } from '../command/operation.ts';
import { argument, flag, option, optionalArgument } from '../command/operation-fields.ts';
import { fieldsText, tableText } from '../command/text-table.ts';
import { moveFields, moveInterrupt, moveJson, moveRequest, observeMoves, returnMove } from './move-results.ts';
import type { PrunedDatabase } from './prune-databases.ts';

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

A move that fails or is killed leaves the tenant in the database that it had. Run the command again: it begins anew.`,
  access: 'installation',
  effect: 'changes',
  isTraced: true,
  json: moveJson,
  interrupt: moveInterrupt,
  async plan(values, { installation }) {
    const { slug, to } = direction(values);
    const { planMove } = await import('./plan-move.ts');
    const { reversibleTarget } = await import('./move-tenant.ts');
    const plan = await planMove(installation, slug, to ?? (await reversibleTarget(installation, slug)));
    return { document: plan, text: () => fieldsText(plan) };
  },
  async run(values, context) {
    const { installation, output } = context;
    const { slug, to } = direction(values);
    const { moveTenant, reversibleTarget } = await import('./move-tenant.ts');
    const isBack = to === undefined;
    const request = { ...moveRequest(values), to: to ?? (await reversibleTarget(installation, slug)), isBack };
    returnMove(output, await observeMoves(context, observers => moveTenant(installation, slug, request, observers)));
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
    const { findPrunable } = await import('./prune-databases.ts');
    const { findTenant } = await import('../tenants/tenants.ts');
    const { server } = await findTenant(installation, slug);
    const rows = (await findPrunable(installation, slug, 'leftovers')).flatMap(droppedRow);
    return { document: rows, text: () => tableText(rows, nothingUnfinished(slug, server.name)) };
  },
  async run({ slug }, { installation, output }) {
    const { pruneDatabases } = await import('./prune-databases.ts');
    const { findTenant } = await import('../tenants/tenants.ts');
    const rows = (await pruneDatabases(installation, slug, 'leftovers')).flatMap(droppedRow);
    const { server } = await findTenant(installation, slug);
    output.result(rows, () => tableText(rows, nothingUnfinished(slug, server.name)));
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
    const { findPrunable } = await import('./prune-databases.ts');
    const found = await findPrunable(installation, slug, slug === undefined ? 'overdue' : 'moved');
    const rows = found.flatMap(droppedRow);
    const consequence = 'can not be moved back any more: its old database will be dropped';
    return {
      document: rows,
      text: () => tableText(rows, nothingOld),
      confirm: slug === undefined ? undefined : { name: slug, consequence },
    };
  },
  async run({ slug }, { installation, output }) {
    const { pruneDatabases } = await import('./prune-databases.ts');
    const pruned = await pruneDatabases(installation, slug, slug === undefined ? 'overdue' : 'moved');
    const rows = pruned.flatMap(droppedRow);
    output.result(rows, () => tableText(rows, nothingOld));
  },
});

export const operations = [move, abort, settle];

const nothingOld = 'There is no old database to drop.';
const nothingUnfinished = (slug: string, server: string): string =>
  `${slug} has no unfinished move, and is served by ${server}.`;

/** Returns where a tenant moves; without `to`, back. */
function direction({ slug, to, back }: { slug: string | undefined; to: string | undefined; back: boolean }) {
  if (slug === undefined || (to === undefined) !== back)
    throw new OperatorError('Name a tenant, and give either --to <server> or --back', { usage: true });
  return { slug, to };
}

function droppedRow({ slug, server, database, action }: PrunedDatabase) {
  return action === 'drop' ? [{ slug, server, dropped: database }] : [];
}
