import type { Command } from 'commander';
import { rollback } from '../migrations/rollback.ts';
import { findTenant } from '../tenants/tenants.ts';
import { withInstallation } from './command.ts';
import { confirmSlug } from './confirm-slug.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { withSpinner } from './spinner.ts';

/** Adds `rollback`: undoes the last migration of one tenant. */
export function addRollbackCommand(tenant: Command): void {
  tenant
    .command('rollback')
    .description('undo the last migration of one tenant; this build then responds to its requests with 503')
    .argument('<slug>')
    .option('--yes', 'do not ask for confirmation')
    .option(...jsonOption)
    .addHelpText(
      'after',
      '\nRemoves what the migration added, with its data. Then the previous build can serve the tenant, and this\n' +
        'build responds with 503 migration_pending. Bring the tenant back to head: npm run -s tenant -- migrate <slug>',
    )
    .action(
      withInstallation(async (installation, slug: string, options: OutputOptions & { yes?: boolean }) => {
        await findTenant(installation, slug);
        await confirmSlug(slug, 'loses what its last migration added, and this build stops serving it', options.yes);
        const { from, to } = await withSpinner(`rolling back ${slug}`, rollback(installation, slug));
        printResult(options, { slug, from, to }, () => `${slug}: ${from} → ${to}`);
      }),
    );
}
