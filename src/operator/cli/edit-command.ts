import type { Command } from 'commander';
import { withStatements } from './command.ts';
import { dryRunOption, jsonOption, type OutputOptions, printResult } from './output.ts';
import { tableText } from './text-table.ts';

interface EditOptions extends OutputOptions {
  name?: string;
  appId?: string;
  enable: string[];
  disable: string[];
  dryRun?: boolean;
}

/** Adds `edit`: name, application identifier and features of a tenant. */
export function addEditCommand(program: Command): void {
  const collect = (value: string, previous: string[]): string[] => [...previous, value];
  program
    .command('edit')
    .description('change the name, the application identifier or the features of a tenant')
    .argument('<slug>')
    .option('--name <name>', 'name of the company')
    .option('--app-id <id>', 'application identifier')
    .option('--enable <feature>', 'a feature to enable, such as legacyTokens; may be repeated', collect, [])
    .option('--disable <feature>', 'a feature to disable; may be repeated', collect, [])
    .option(...dryRunOption)
    .option(...jsonOption)
    .action(
      withStatements(async (control, slug: string, { dryRun = false, ...options }: EditOptions) => {
        const { editTenant, planEdit } = await import('../tenants/edit-tenant.ts');
        const { name, appId, enable, disable } = options;
        const { guid, changes } = await (dryRun ? planEdit : editTenant)(control, slug, {
          name,
          appId,
          enable,
          disable,
        });
        printResult(options, { slug, guid, state: dryRun ? 'planned' : 'changed', changes }, () =>
          tableText(changes, `${slug} has these values already.`),
        );
      }),
    );
}
