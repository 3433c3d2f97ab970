import type { Command } from 'commander';
import { withInstallation } from './command.ts';
import { confirmBlocking, type DespiteRunningOptions, despiteRunningOption } from './confirm-blocking.ts';
import { confirmName } from './confirm-name.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { withSpinner } from './spinner.ts';

interface RollbackOptions extends OutputOptions, DespiteRunningOptions {
  yes?: boolean;
}

/** Adds `rollback`: undoes the last migration of one tenant. */
export function addRollbackCommand(program: Command): void {
  program
    .command('rollback')
    .description('undo the last migration of one tenant; this build then responds to its requests with 503')
    .argument('<slug>')
    .option('--yes', 'do not ask for confirmation')
    .option(...despiteRunningOption)
    .option(...jsonOption)
    .addHelpText(
      'after',
      '\nRemoves what the migration added, with its data. Then the previous build can serve the tenant, and this\n' +
        'build responds with 503 migration_pending, so the command is refused while a process of this build runs.\n' +
        'Bring the tenant back to head: npx backoffice migrate <slug>',
    )
    .action(
      withInstallation(async (installation, slug: string, options: RollbackOptions) => {
        const { processesBlockingRollback } = await import('../migrations/blocking-processes.ts');
        const { rollback } = await import('../migrations/rollback.ts');
        const { findTenant } = await import('../tenants/tenants.ts');
        await findTenant(installation, slug);
        await confirmName(slug, 'loses what its last migration added, and this build stops serving it', options.yes);
        await confirmBlocking(await processesBlockingRollback(installation, slug), options);
        const { from, to } = await withSpinner(`rolling back ${slug}`, rollback(installation, slug));
        printResult(options, { slug, from, to }, () => `${slug}: ${from} → ${to}`);
      }),
    );
}
