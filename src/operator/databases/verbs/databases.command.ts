import { OperatorError } from '../../../lib/log/operator-error.ts';
import { defineChange } from '../../command/define-change.ts';
import { defineList } from '../../command/define-list.ts';
import { argument, optionalArgument } from '../../command/operation-fields.ts';
import { sizeText } from '../../command/texts.ts';
import { leaveSchemas, observeRun } from './move-results.ts';
import { holdingLines, prunedText } from './pruned-text.ts';

const list = defineList({
  name: 'databases',
  help: {
    description:
      'list the databases of a tenant, or all that are not simply that of their tenant, and ' +
      'why they are there',
    examples: ['databases', 'databases acme'],
  },
  fields: { slug: optionalArgument('slug') },
  async items({ slug }, { installation }) {
    const { listDatabases } = await import('./list-databases.ts');
    return listDatabases(installation, slug);
  },
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
  nameOf: ({ database }) => database,
  empty: 'Every tenant has one database.',
});

const prune = defineChange({
  name: 'databases prune',
  help: {
    description:
      'drop databases whose time has passed, and what killed commands have left; put tenants back into service',
    examples: ['databases prune # of all tenants, for a timer', 'databases prune acme'],
  },
  fields: { slug: optionalArgument('slug'), leaveSchemas },
  effect: 'changes',
  handling: { isRoutine: true },
  async change({ slug, leaveSchemas }, context, isDryRun) {
    const { planPruneDatabases, pruneDatabases } = await import('./prune-databases.ts');
    const { installation } = context;
    const document = isDryRun
      ? await planPruneDatabases(installation, slug, leaveSchemas)
      : await pruneDatabases(installation, slug, observeRun(context), { leaveSchemas });
    const text = prunedText(
      document,
      'There is no database to drop, and no tenant to put back into service.',
    );
    return { document, plan: text, done: text };
  },
});

const drop = defineChange({
  name: 'databases drop',
  help: {
    description: 'drop a restored or a kept database of a tenant for good',
    examples: ['databases drop acme backoffice_tenant_17_3f9a1c0b7d2e'],
  },
  fields: { slug: argument('slug'), database: argument('database'), leaveSchemas },
  effect: 'destroys',
  async change({ slug, database, leaveSchemas }, context, isDryRun) {
    const { planDrops, pruneDatabases, requireNoRefusal } = await import('./prune-databases.ts');
    const { installation } = context;
    const isChosen = (each: { database: string }): boolean => each.database === database;
    const request = { isChosen, leaveSchemas };
    const document = isDryRun
      ? (await planDrops(installation, slug, request)).filter(isChosen)
      : await pruneDatabases(installation, slug, observeRun(context), request);
    if (isDryRun) requireNoRefusal(document);
    if (isDryRun && document.length === 0) {
      throw new OperatorError(
        `${slug} has no database ${database} that can be dropped. List them: ` +
          `bin/backoffice databases ${slug}`,
      );
    }

    return {
      document,
      plan: [`Database ${database} of ${slug} would be dropped.`, ...holdingLines(document)].join(
        '\n',
      ),
      confirm: { name: slug, consequence: `loses database ${database}, with the data in it` },
      done: prunedText(document, 'There is no database to drop.'),
    };
  },
});

export const operations = [list, prune, drop];
