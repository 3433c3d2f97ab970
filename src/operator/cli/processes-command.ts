import type { Command } from 'commander';
import type { ProcessSummary } from '../tenants/processes.ts';
import { withStatements } from './command.ts';
import { jsonOption, type OutputOptions } from './output.ts';
import { printList } from './print-list.ts';
import { watch, watchOption } from './watch.ts';

const help = `
Of the connections to each server, those that are held exist, granted ones may be opened, and wanted is how many the
process had a use for in the last seconds. npx backoffice server list shows the sums of all processes.`;

/** Adds the command `processes`. */
export function addProcessesCommand(program: Command): void {
  program
    .command('processes')
    .description('list the running processes and their connections to each server')
    .option(...watchOption)
    .option(...jsonOption)
    .addHelpText('after', help)
    .action(
      withStatements(async (control, options: OutputOptions & { watch?: boolean }) => {
        const { listProcesses } = await import('../tenants/processes.ts');
        const show = async (): Promise<void> =>
          printList(
            options,
            await listProcesses(control),
            {
              row: rowOf,
              wide: ({ id, kind }) => ({ kind, id }),
              name: ({ id }) => id,
              empty: 'No process is running.',
            },
            false,
            options.watch,
          );
        await (options.watch ? watch(show) : show());
      }),
    );
}

function rowOf({ host, pid, build, tenantHead, startedAt, heartbeatAge, servers }: ProcessSummary): object {
  const connections = servers.map(({ server, held, granted, wanted }) => `${server} ${held}/${granted}/${wanted}`);
  return {
    host,
    pid,
    'held/granted/wanted': connections.join(', ') || null,
    heartbeat: heartbeatAge === null ? null : `${heartbeatAge} s ago`,
    build,
    schema: tenantHead,
    started: startedAt,
  };
}
