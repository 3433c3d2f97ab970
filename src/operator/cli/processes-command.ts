import type { Command } from 'commander';
import type { ProcessSummary } from '../tenants/processes.ts';
import { withStatements } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { tableText } from './text-table.ts';

/** Adds the command `processes`. */
export function addProcessesCommand(tenant: Command): void {
  tenant
    .command('processes')
    .description('list the running processes and their connections to each server')
    .option(...jsonOption)
    .action(
      withStatements(async (control, options: OutputOptions) => {
        const { listProcesses } = await import('../tenants/processes.ts');
        const processes = await listProcesses(control);
        printResult(options, processes, () => tableText(processes.map(rowOf), 'No process is running.'));
      }),
    );
}

function rowOf({ host, pid, build, tenantHead, startedAt, heartbeatAge, servers }: ProcessSummary): object {
  const connections = servers.map(({ server, held, granted, wanted }) => `${server} ${held}/${granted}/${wanted}`);
  return {
    host,
    pid,
    build,
    schema: tenantHead,
    started: startedAt,
    heartbeat: heartbeatAge === null ? null : `${heartbeatAge} s ago`,
    'held/granted/wanted': connections.join(', ') || null,
  };
}
