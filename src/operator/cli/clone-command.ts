import type { Command } from 'commander';
import { summarise } from '../tenants/read-tenants.ts';
import { withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { withSpinner } from './spinner.ts';
import { fieldsText } from './text-table.ts';

/** Adds `clone`. */
export function addClone(program: Command): void {
  program
    .command('clone')
    .description(
      'copy a tenant to a new slug, with its own key and login role, isolated; sessions and API clients are not copied',
    )
    .argument('<slug>')
    .argument('<new-slug>')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, newSlug: string, options: OutputOptions) => {
        const { createPasswords } = await import('../../auth/passwords.ts');
        const { cloneTenant } = await import('../provisioning/clone.ts');
        const clone = cloneTenant(installation, createPasswords(), slug, newSlug);
        const summary = summarise(await withSpinner(`cloning ${slug}`, clone));
        printResult(options, summary, () => fieldsText(summary));
      }),
    );
}
