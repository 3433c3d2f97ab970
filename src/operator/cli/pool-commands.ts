import type { Command } from 'commander';
import { fillPool, listPool } from '../provisioning/warm-pool.ts';
import { positive, printJson, printTable, withInstallation } from './command.ts';
import { during } from './spinner.ts';

const defaultSize = 10;

/** `pool`: databases that wait for tenants. Nobody fills it but this command. */
export function addPoolCommands(pool: Command): void {
  pool
    .command('fill')
    .description('make databases ready for tenants to come, and drop those that no tenant of this build can have')
    .option('--size <databases>', 'how many are to wait on each server', positive, defaultSize)
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, { size, json }: { size: number; json?: boolean }) => {
        const filled = await during('copying the template', fillPool(installation, size));
        if (json) printJson(filled);
        else printTable([...filled] as never, 'No servers.');
        return filled.every(({ error }) => error === null);
      }),
    );
  pool
    .command('list')
    .description('the databases that wait for tenants')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, { json }: { json?: boolean }) => {
        const pool = await listPool(installation);
        if (json) printJson(pool);
        else printTable([...pool] as never, 'None: npm run -s tenant -- pool fill');
      }),
    );
}
