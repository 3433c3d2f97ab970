import type { Command } from 'commander';
import type { FleetStatus } from '../migrations/fleet-status.ts';
import { withStatements } from './command.ts';
import { jsonOption, type OutputOptions, printPart, printResult } from './output.ts';
import { tableText } from './text-table.ts';
import { watch, watchOption } from './watch.ts';

/** Adds `status`: the schema versions of the fleet and the last migration run. */
export function addStatusCommand(program: Command): void {
  program
    .command('status')
    .description('show the fleet by schema version and state, and the outcome of the last migration run')
    .option(...watchOption)
    .option(...jsonOption)
    .action(
      withStatements(async (control, options: OutputOptions & { watch?: boolean }) => {
        const { fleetStatus } = await import('../migrations/fleet-status.ts');
        const show = async (): Promise<void> => {
          const { head, fleet, failing, lastRun } = await fleetStatus(control);
          const status: FleetStatus = { head, fleet, failing, lastRun };
          const print = options.watch ? printPart : printResult;
          print(options, status, () => textOf(status));
        };
        await (options.watch ? watch(show) : show());
      }),
    );
}

function textOf({ head, fleet, failing, lastRun }: FleetStatus): string {
  const rows = fleet.map(row => ({ ...row, schemaVersion: row.schemaVersion ?? 'between versions' }));
  const lines = [`This build: ${head}`, '', tableText(rows, 'There is no tenant.')];
  if (lastRun) {
    const { id, state, requestedBy, startedAt, outcomes } = lastRun;
    const counts = Object.entries(outcomes).map(([name, count]) => `${count} ${name}`);
    lines.push('', `Last run: ${id}, ${state}, ${startedAt} by ${requestedBy}: ${counts.join(', ')}`);
  }
  if (failing.length > 0) {
    const command = 'npx backoffice migrate --retry-failed';
    lines.push(
      '',
      `The last migration of these tenants failed. Migrate them again: ${command}`,
      tableText(failing, ''),
    );
  }
  return lines.join('\n');
}
