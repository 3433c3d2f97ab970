import { html } from '../../../lib/html/html.ts';
import { readFindings } from '../../doctor/read-findings.ts';
import type { ReportedFinding, ServerMeasures } from '../../doctor/reports.ts';
import { bytesByServer, listServers } from '../../registry/read-servers.ts';
import { listProcesses } from '../../servers/processes.ts';
import type { PageRequest } from '../console-page.ts';
import { hour, size, state, time } from '../format.ts';
import { operationLink, withQuery } from '../links.ts';
import { table } from '../view.ts';
import { findingsLink } from './findings.ts';

const maxProcesses = 100;

/** Servers and processes. */
export async function capacityPage({ control }: PageRequest) {
  const bytes = await bytesByServer(control);
  const processes = await listProcesses(control);
  const report = await readFindings(control, { tenant: null });
  const open = (report?.findings ?? []).filter(({ fixed }) => !fixed);

  const servers = (await listServers(control)).map(server => ({
    ...server,
    data: bytes.get(server.name),
    findings: open.filter(finding => finding.server === server.name),
    // a report of an earlier build has none
    measured: report?.measured?.find(each => each.server === server.name),
  }));

  const links = [
    operationLink('server add', 'Add a server'),
    operationLink('databases', 'Databases beside'),
  ];

  const main = html`${table('Servers', servers, 'There is no server.', [
    [
      'Server',
      ({ name }) => html`<a href="${withQuery('/tenants', { server: name })}">${name}</a>`,
    ],
    [
      'Tenants',
      ({ tenants, capacity }) => (capacity === null ? tenants : `${tenants} of ${capacity}`),
    ],
    ['Data', ({ data }) => size(data?.bytes)],
    ['Measured', ({ data }) => hour(data?.measuredAt)],
    ['Databases', ({ measured }) => measured?.databases],
    ['Log archived', ({ measured }) => measured && archived(measured)],
    ['Standbys', ({ measured }) => measured && standbys(measured)],
    [
      'Findings',
      ({ name, findings }) =>
        findingsLink(findings.length, findings.some(isError), { server: name }),
    ],
    [
      'What to do',
      ({ name, capacity }) =>
        html`${operationLink('server set', 'Set the capacity', { name, capacity: String(capacity ?? 'none') })} ${operationLink('server drain', 'Drain', { name })}`,
    ],
  ])}
<p class="hint">Data is the last known size of the tenants' databases. doctor counted the databases, the archived log and the standbys, ${report ? time(report.madeAt) : 'which has not looked yet'}.
PostgreSQL does not say how much room its disk has: watch that on the machine of the server.</p>
${table('Processes', processes.slice(0, maxProcesses), 'No process is running.', [
  ['Process', ({ host, kind, pid }) => `${kind} ${pid} on ${host}`],
  ['State', ({ isRunning }) => (isRunning ? state('alive', 'good') : state('silent'))],
  ['Heard of', ({ heartbeatAge: age }) => time(new Date(Date.now() - age * 1_000))],
  'build',
  ['Schema', 'tenantHead'],
  'startedAt',
  ['Share', 'share'],
])}
<p class="hint">A share is how many connections each process of the service may open to each server: CONNECTION_BUDGET, less a reserve for commands, divided by the number of these processes.</p>`;

  return { title: 'Capacity', links, main };
}

const isError = ({ severity }: ReportedFinding): boolean => severity === 'error';

function archived({ archivedAt, archiveFails }: ServerMeasures) {
  return archiveFails
    ? html`${state('failed')}, last ${time(archivedAt)}`
    : archivedAt
      ? time(archivedAt)
      : 'never';
}

function standbys({ receivers, lagBytes }: ServerMeasures) {
  return receivers > 0 && lagBytes !== null
    ? `${receivers}, at most ${size(lagBytes)} behind`
    : receivers;
}
