import { html } from '../../../docs/html.ts';
import { readFindings } from '../../doctor/read-findings.ts';
import type { ServerMeasures } from '../../doctor/reports.ts';
import { connectionsByServer, listProcesses } from '../../tenants/processes.ts';
import { bytesByServer, listServers, type ServerSummary } from '../../tenants/read-servers.ts';
import type { PageRequest } from '../console-services.ts';
import { size, state, time } from '../format.ts';
import { operationLink, withQuery } from '../links.ts';
import { actions, table } from '../view.ts';
import { findingsLink } from './findings.ts';

const maxProcesses = 100;
const silentAfterSeconds = 30;

/** Whether a process sends no heartbeats any more. */
export function isSilent({ heartbeatAge }: { readonly heartbeatAge: number | null }): boolean {
  return heartbeatAge === null || heartbeatAge > silentAfterSeconds;
}

/** Servers and processes, with the connections that they have. */
export async function capacityPage({ services: { control } }: PageRequest) {
  const bytes = await bytesByServer(control);
  const processes = await listProcesses(control);
  const connections = connectionsByServer(processes);
  const report = await readFindings(control, { tenant: null });
  const open = (report?.findings ?? []).filter(({ fixed, accepted }) => !fixed && !accepted);
  const servers = (await listServers(control)).map(server => ({
    ...{ ...server, bytes: bytes.get(server.name), ...connections.get(server.name) },
    findings: open.filter(finding => finding.server === server.name).length,
    measured: report?.measured?.find(each => each.server === server.name), // a report of an earlier build has none
  }));
  const main = html`${actions(
    operationLink('server add', 'Add a server'),
    operationLink('server rebalance', 'Plan a rebalance'),
    operationLink('pool list', 'Warm databases'),
    operationLink('databases', 'Databases beside'),
  )}
${table('Servers', servers, 'There is no server.', [
  ['Server', ({ name }) => html`<a href="${withQuery('/tenants', { server: name })}">${name}</a>`],
  ['Tenants', room],
  ['Held / granted / wanted', ({ held = 0, granted = 0, wanted = 0 }) => `${held} / ${granted} / ${wanted}`],
  ['Data', 'bytes'],
  ['Databases', ({ measured }) => measured?.databases],
  ['Log archived', ({ measured }) => measured && archived(measured)],
  ['Standbys', ({ measured }) => measured && standbys(measured)],
  ['Findings', ({ name, findings }) => findings && findingsLink(findings, { server: name })],
  [
    'What to do',
    ({ name, capacity }) =>
      html`${operationLink('server set', 'Set the capacity', { name, capacity: String(capacity ?? 'none') })} ${operationLink('server drain', 'Drain', { name })}`,
  ],
])}
<p class="hint">Connections that are held exist, granted ones may be opened, and wanted is how many the processes had a use for in the last seconds.
Data is the last known size of the tenants' databases. doctor counted the databases, the archived log and the standbys, ${report ? time(report.madeAt) : 'which has not looked yet'}.
PostgreSQL does not say how much room its disk has: watch that on the machine of the server.</p>
${table('Processes', processes.slice(0, maxProcesses), 'No process is running.', [
  ['Process', ({ host, kind, pid }) => (host === null ? 'gone' : `${kind ?? 'process'} ${pid} on ${host}`)],
  ['State', process => (isSilent(process) ? state('silent') : state('alive', 'good'))],
  ['Heard of', ({ heartbeatAge: age }) => (age === null ? null : time(new Date(Date.now() - age * 1_000)))],
  'build',
  ['Schema', 'tenantHead'],
  'startedAt',
  [
    'Held / granted / wanted',
    ({ servers }) => servers.map(each => `${each.server} ${each.held} / ${each.granted} / ${each.wanted}`).join(', '),
  ],
])}`;
  return { title: 'Capacity', main };
}

function archived({ archivedAt, archiveFails }: ServerMeasures) {
  return archiveFails ? html`${state('failed')}, last ${time(archivedAt)}` : archivedAt ? time(archivedAt) : 'never';
}

function standbys({ receivers, lagBytes }: ServerMeasures) {
  return receivers > 0 && lagBytes !== null ? `${receivers}, at most ${size(lagBytes)} behind` : receivers;
}

function room({ name, tenants, capacity }: ServerSummary) {
  if (capacity === null) return tenants;
  const text = `${tenants} of ${capacity}`;
  return html`<meter min="0" max="${Math.max(1, capacity)}" high="${capacity * 0.9}" value="${tenants}" aria-label="Tenants of ${name}">${text}</meter> ${text}`;
}
