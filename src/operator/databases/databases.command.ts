import type { ControlStatements } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { defineOperation } from '../command/operation.ts';
import { argument, optionalArgument } from '../command/operation-fields.ts';
import { tableText } from '../command/text-table.ts';
import { sizeText } from '../command/texts.ts';
import { observeRun } from './move-results.ts';

const list = defineOperation({
  name: 'databases',
  description:
    'list the databases of a tenant, or all that are not simply that of their tenant, and why they are there',
  fields: { slug: optionalArgument('slug') },
  examples: ['databases', 'databases acme'],
  access: 'statements',
  effect: 'reads',
  isList: true,
  async run({ slug }, { installation, output }) {
    const { listDatabases } = await import('./list-databases.ts');
    await requireTenant(installation, slug);
    output.list(await listDatabases(installation, slug), {
      row: ({ slug, database, server, state, keepUntil, why }) => ({
        slug,
        database,
        server,
        state,
        until: keepUntil,
        why,
      }),
      wide: ({ origin, bytes, createdAt, error }) => ({
        origin,
        size: bytes === null ? null : sizeText(bytes),
        created: createdAt,
        error,
      }),
      name: ({ database }) => database,
      empty: 'Every tenant has one database.',
    });
  },
});

const prune = defineOperation({
  name: 'databases prune',
  description:
    'drop databases whose time has passed, and what killed commands have left; put tenants back into service',
  fields: { slug: optionalArgument('slug') },
  examples: ['databases prune # of all tenants, for a timer', 'databases prune acme'],
  access: 'installation',
  effect: 'changes',
  isRoutine: true,
  async plan({ slug }, { installation }) {
    const { planPrune } = await import('./prune-databases.ts');
    await requireTenant(installation, slug);
    const found = await planPrune(installation, slug);
    return { document: found, text: () => tableText(found, nothing) };
  },
  async run({ slug }, context) {
    const { pruneDatabases } = await import('./prune-databases.ts');
    const pruned = await pruneDatabases(context.installation, slug, observeRun(context));
    context.output.result(pruned, () => tableText(pruned, nothing));
  },
});

const drop = defineOperation({
  name: 'databases drop',
  description: 'drop a restored or a kept database of a tenant for good',
  fields: { slug: argument('slug'), database: argument('database') },
  examples: ['databases drop acme backoffice_tenant_17'],
  access: 'installation',
  effect: 'destroys',
  async plan({ slug, database }, { installation }) {
    const { findPrunable } = await import('./prune-databases.ts');
    await requireTenant(installation, slug);
    const found = (await findPrunable(installation, slug, [database])).filter(each => each.database === database);
    if (found.length === 0)
      throw new OperatorError(
        `${slug} has no database ${database} that can be dropped. List them: npx backoffice databases ${slug}`,
      );
    return {
      document: found,
      text: () => `Database ${database} of ${slug} would be dropped.`,
      confirm: { name: slug, consequence: `loses database ${database}, with the data in it` },
    };
  },
  async run({ slug, database }, context) {
    const { pruneDatabases } = await import('./prune-databases.ts');
    const pruned = await pruneDatabases(context.installation, slug, observeRun(context), [database]);
    context.output.result(pruned, () => tableText(pruned, 'There is no database to drop.'));
  },
});

/** @throws {OperatorError} when there is no tenant with that slug: it may be mistyped */
async function requireTenant(reader: ControlStatements, slug: string | undefined): Promise<void> {
  const { readTenant } = await import('../tenants/read-tenants.ts');
  if (slug !== undefined) await readTenant(reader, slug);
}

export const operations = [list, prune, drop];

const nothing = 'There is no database to drop, and no tenant to put back into service.';
