import { html } from '../../../docs/html.ts';
import { connectionsByServer, listProcesses } from '../../tenants/processes.ts';
import { listServers } from '../../tenants/read-servers.ts';
import type { PageRequest } from '../console-services.ts';
import { actions, operationLink, state, table, time } from '../view.ts';

const maxProcesses = 100;
const silentAfterSeconds = 30;

/** Whether a process no longer says that it is there. */
export function isSilent({ heartbeatAge }: { readonly heartbeatAge: number | null }): boolean {
  return heartbeatAge === null || heartbeatAge > silentAfterSeconds;
}

/** Servers and processes, with the connections that they have. */
export async function capacityPage({ services: { control } }: PageRequest) {
  const connections = await connectionsByServer(control);
  const servers = await listServers(control);
  const processes = await listProcesses(control);
  const number = (name: string) => ({ name, isNumber: true });
  const main = html`<h1>Capacity</h1>
${actions(
  operationLink('server add', 'Add a server'),
  operationLink('server rebalance', 'Plan a rebalance'),
  operationLink('pool list', 'Warm databases'),
  operationLink('databases', 'Databases beside'),
)}
${table({
  caption: 'Servers',
  columns: ['Server', number('Tenants'), 'Capacity', number('Held'), number('Granted'), number('Wanted'), 'What to do'],
  rows: servers.map(({ name, tenants, capacity }) => {
    const { held, granted, wanted } = connections.get(name) ?? { held: 0, granted: 0, wanted: 0 };
    return [
      html`<a href="/tenants?server=${encodeURIComponent(name)}">${name}</a>`,
      tenants.toLocaleString('en'),
      capacity === null
        ? 'no limit'
        : html`<meter min="0" max="${Math.max(1, capacity)}" high="${capacity * 0.9}" value="${tenants}" aria-label="Tenants of ${name}">${tenants} of ${capacity}</meter> ${tenants} of ${capacity}`,
      held,
      granted,
      wanted > granted ? state(String(wanted), 'warn') : wanted,
      html`${operationLink('server set', 'Set the capacity', { name, capacity: String(capacity ?? 'none') })} ${operationLink('server drain', 'Drain', { name })}`,
    ];
  }),
  empty: 'There is no server.',
})}
<p class="hint">Connections that are held exist, granted ones may be opened, and wanted is how many the processes had a use for in the last seconds.</p>
${table({
  caption: 'Processes',
  columns: ['Process', 'State', 'Build', 'Schema', 'Started', 'Held / granted / wanted'],
  rows: processes
    .slice(0, maxProcesses)
    .map(({ host, pid, kind, build, tenantHead, startedAt, heartbeatAge, servers }) => [
      html`${host === null ? 'gone' : `${kind ?? 'process'} ${pid} on ${host}`}`,
      isSilent({ heartbeatAge }) ? state('silent') : state('alive', 'good'),
      build && html`<code>${build}</code>`,
      tenantHead && html`<code>${tenantHead.slice(0, 4)}</code>`,
      time(startedAt),
      servers.map(({ server, held, granted, wanted }) => `${server} ${held} / ${granted} / ${wanted}`).join(', '),
    ]),
  empty: 'No process is running.',
})}`;
  return { title: 'Capacity', main };
}
