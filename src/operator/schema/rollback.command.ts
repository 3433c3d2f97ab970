import { defineOperation } from '../command/operation.ts';
import { argument } from '../command/operation-fields.ts';
import { blockingText, confirmBlocking, despiteRunning, planBlocking } from './confirm-blocking.ts';

const rollbackTenant = defineOperation({
  name: 'rollback',
  help: {
    description:
      'undo the last migration of one tenant; this build then responds to its requests with 503',
    examples: ['rollback acme --reason "migration is wrong"'],
    more: `Removes what the migration added, with its data. Then the previous build can serve the tenant, and this
build responds with 503 migration_pending, so the command is refused while a process of this build runs.
Bring the tenant back to head: bin/backoffice migrate <slug>`,
  },
  fields: { slug: argument('slug'), despiteRunning },
  effect: 'destroys',
  async plan({ slug, despiteRunning }, { installation }) {
    const { processesBlockingRollback } = await import('./blocking-processes.ts');
    const { findUndo } = await import('./rollback.ts');
    const { readSchemaSteps } = await import('./schema-steps.ts');
    const { findTenant } = await import('../registry/tenants.ts');
    const { schemaVersion: version } = await findTenant(installation, slug);
    findUndo(await readSchemaSteps(), slug, version);
    const blockedBy = await processesBlockingRollback(installation, slug);
    const { hasFailed, lines } = planBlocking(blockedBy, blockingText, despiteRunning);
    const loss =
      `${slug} would lose what ${version ?? 'its last migration'} added, and this build stop ` +
      'serving it.';

    return {
      document: { slug, undone: version, blockedBy, state: 'planned' },
      text: () => [loss, ...lines].join('\n'),
      hasFailed,
      confirm: {
        name: slug,
        consequence: 'loses what its last migration added, and this build stops serving it',
      },
    };
  },
  async run({ slug, despiteRunning }, context) {
    const { installation, output, progress } = context;
    const { processesBlockingRollback } = await import('./blocking-processes.ts');
    const { rollback } = await import('./rollback.ts');
    const blockedBy = await processesBlockingRollback(installation, slug);
    await confirmBlocking(blockedBy, blockingText, despiteRunning, context);
    progress.step(`rolling back ${slug}`);
    const { from, to } = await rollback(installation, slug);
    output.result({ slug, from, to }, () => `${slug}: ${from} → ${to}`);
  },
});

export const operations = [rollbackTenant];
