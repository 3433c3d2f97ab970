import type { Command } from 'commander';
import { withStatements } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { fieldsText } from './text-table.ts';

/** Adds `show`: one tenant. */
export function addShowCommand(program: Command): void {
  program
    .command('show')
    .description('show one tenant')
    .argument('<slug>')
    .option(...jsonOption)
    .action(
      withStatements(async (control, slug: string, options: OutputOptions) => {
        const { showTenant } = await import('../tenants/read-tenants.ts');
        const { keys, features, ...fields } = await showTenant(control, slug);
        printResult(options, { ...fields, features, keys }, () =>
          [
            fieldsText({ ...fields, features: features.join(', ') || '–' }),
            ...keys.map(key => fieldsText({ 'signing key': `${key.kid}  ${key.status}  since ${key.createdAt}` })),
          ].join('\n'),
        );
      }),
    );
}
