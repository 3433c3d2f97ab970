import { resolve } from 'node:path';
import type { Command } from 'commander';
import { withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { withSpinner } from './spinner.ts';
import { tableText } from './text-table.ts';

/** Adds `export`: the data of a tenant, for the tenant. */
export function addExportCommand(program: Command): void {
  program
    .command('export')
    .description('write the data of a tenant, for the tenant, into a tar file of JSON Lines, CSV and JSON Schemas')
    .argument('<slug>')
    .requiredOption('--to <file>', 'the tar file, which must not exist')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, { to, ...options }: OutputOptions & { to: string }) => {
        const { exportTenant } = await import('../export/export-tenant.ts');
        const report = await withSpinner(`exporting ${slug}`, exportTenant(installation, slug, resolve(to)));
        printResult(options, report, () =>
          [tableText(report.resources, ''), '', `${slug} is exported to ${report.file} (${report.bytes} bytes).`].join(
            '\n',
          ),
        );
      }),
    );
}
