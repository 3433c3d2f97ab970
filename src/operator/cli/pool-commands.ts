import type { Command } from 'commander';
import { parsePositive, withInstallation } from './command.ts';
import { dryRunOption, jsonOption, type OutputOptions, printResult } from './output.ts';
import { printList } from './print-list.ts';
import { withSpinner } from './spinner.ts';
import { tableText } from './text-table.ts';

/** Warm databases on each server. */
const defaultSize = 10;

/** Adds the commands of `pool`: databases made in advance for new tenants. Only `pool fill` makes them. */
export function addPoolCommands(program: Command): void {
  const pool = program.command('pool').description('warm databases, made ahead for new tenants');
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
        printList(options, databases, {
          row: database => database,
          name: ({ database }) => database,
          empty: 'The pool is empty. Fill it: npx backoffice pool fill',
        });
      }),
    );
  addDrain(pool);
}

function addDrain(pool: Command): void {
  pool
    .command('drain')
    .description('drop the warm databases; new tenants take longer until the next pool fill')
    .option('--server <name>', 'only those of this server')
    .option(...dryRunOption)
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, options: OutputOptions & { server?: string; dryRun?: boolean }) => {
        const { Server } = await import('../../control/fleet-entities.ts');
        const { drainPool } = await import('../provisioning/drain-pool.ts');
        const { listPool } = await import('../provisioning/warm-pool.ts');
        const { findServer } = await import('../tenants/servers.ts');
        const servers = options.server
          ? [await findServer(installation, options.server)]
          : await installation.control.em.fork().findAll(Server, { orderBy: { id: 'asc' } });
        const warm = await listPool(installation);
        const drained: { server: string; dropped: number }[] = [];
        for (const server of servers) {
          const dropped = options.dryRun
            ? warm.filter(database => database.server === server.name).length
            : await drainPool(installation, server);
          drained.push({ server: server.name, dropped });
        }
        const rows = drained.map(({ server, dropped }) =>
          options.dryRun ? { server, 'to drop': dropped } : { server, dropped },
        );
        printResult(options, drained, () => tableText(rows, 'There is no server.'));
      }),
    );
}
