import { defineList } from '../command/define-list.ts';
import type { ProcessSummary } from './processes.ts';

const processes = defineList({
  name: 'processes',
  description: 'list the running processes and their connections to each server',
  examples: ['processes', 'processes --watch'],
  help: `Of the connections to each server, those that are held exist, granted ones may be opened, and wanted is how many the
process had a use for in the last seconds. npx backoffice server list shows the sums of all processes.`,
  access: 'statements',
  repeats: 'sometimes',
  async items(_, { installation }) {
    const { listProcesses } = await import('./processes.ts');
    return listProcesses(installation);
  },
  row: rowOf,
  wide: ({ id, kind }) => ({ kind, id }),
  nameOf: ({ id }) => id,
  empty: 'No process is running.',
});

export const operations = [processes];

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
