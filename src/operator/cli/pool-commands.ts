import type { Command } from 'commander';
import { parsePositive, withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { withSpinner } from './spinner.ts';
import { tableText } from './text-table.ts';

/** Warm databases on each server. */
const defaultSize = 10;

/** Adds the commands of `pool`: databases made in advance for new tenants. Only `pool fill` makes them. */
export function addPoolCommands(pool: Command): void {
  pool
    .command('fill')
    .description('make warm databases for new tenants, and drop those that no tenant of this build can use')
    .option('--size <databases>', 'warm databases on each server', parsePositive, defaultSize)
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, { size, ...options }: OutputOptions & { size: number }) => {
        const { fillPool } = await import('../provisioning/warm-pool.ts');
        const servers = await withSpinner('copying the template', fillPool(installation, size));
        printResult(options, servers, () => tableText(servers, 'There is no server.'));
        return servers.every(({ error }) => error === null);
      }),
    );
  pool
    .command('list')
    .description('list the warm databases')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, options: OutputOptions) => {
        const { listPool } = await import('../provisioning/warm-pool.ts');
        const databases = await listPool(installation);
        printResult(options, databases, () =>
          tableText(databases, 'The pool is empty. Fill it: npm run -s tenant -- pool fill'),
        );
      }),
    );
}
