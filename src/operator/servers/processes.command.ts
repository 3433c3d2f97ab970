import { defineList } from '../command/define-list.ts';
import type { ProcessSummary } from './processes.ts';

const processes = defineList({
  name: 'processes',
  help: {
    description: 'list the running processes, and how many connections each may open to a server',
    examples: ['processes', 'processes --watch'],
    more: `A process beats once a second, and runs while its last beat is younger than five seconds. The share is how many
connections each process of the service may open to each server: CONNECTION_BUDGET, less a reserve for commands, divided
by the number of these processes.`,
  },
  handling: { repeats: 'sometimes' },
  async items(_, { installation }) {
    const { listProcesses } = await import('./processes.ts');
    return listProcesses(installation);
  },
  row: rowOf,
  wide: ({ id, clockAheadMs }) => ({
    clock: `${((clockAheadMs ?? 0) / 1_000).toFixed(1)} s ahead`,
    id,
  }),
  nameOf: ({ id }) => id,
  empty: 'No process is running.',
});

export const operations = [processes];

function rowOf(process: ProcessSummary): object {
  const { host, pid, share, connectionBudget, heartbeatAge, build, tenantHead, startedAt } =
    process;
  return {
    host,
    pid,
    kind: process.isRunning ? process.kind : `${process.kind}, silent`,
    share,
    budget: connectionBudget,
    heartbeat: `${heartbeatAge} s ago`,
    build,
    schema: tenantHead,
    started: startedAt,
  };
}
