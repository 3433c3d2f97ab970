import { type Html, html } from '../../../docs/html.ts';
import { readAcceptances } from '../../doctor/accepted-findings.ts';
import { findingKey } from '../../doctor/finding.ts';
import type { ReportedFinding } from '../../doctor/reports.ts';
import { readStoredReport } from '../../doctor/reports.ts';
import type { PageRequest } from '../console-services.ts';
import { actions, facts, operationLink, pageNumber, pager, state, tenantLink, time } from '../view.ts';

const pageSize = 40;
const repair = operationLink('doctor', 'Repair all that has no risk', { fix: 'on' });

/** Returns the findings of a report with what has been accepted since, the worst first, then what needs nothing more. */
export async function currentFindings(
  { statements }: PageRequest['services']['control'],
  findings: readonly ReportedFinding[],
): Promise<ReportedFinding[]> {
  const acceptances = await readAcceptances(statements);
  return findings
    .map(finding => ({ ...finding, accepted: acceptances.get(findingKey(finding)) ?? null }))
    .sort((a, b) => rank(a) - rank(b));
}

/** The last report of doctor. */
export async function findingsPage({ services: { control }, query }: PageRequest) {
  const stored = await readStoredReport(control.statements);
  const check = actions(
    operationLink('doctor', 'Check now'),
    operationLink('doctor', 'Check every database', { full: 'on' }),
    repair,
  );
  if (!stored)
    return { title: 'Findings', main: html`<h1>Findings</h1><p class="empty">doctor has not looked yet.</p>${check}` };
  const { report, madeAt, madeBy } = stored;
  const findings = await currentFindings(control, report.findings);
  const page = pageNumber(query('page'));
  const count = (severity: string): number =>
    findings.filter(each => rank(each) < 2 && each.severity === severity).length;
  const main = html`<h1>Findings</h1>
${facts([
  ['Looked', html`${time(madeAt)} by ${madeBy}`],
  ['Errors', count('error') > 0 ? state(String(count('error')), 'bad') : 0],
  ['Warnings', count('warning') > 0 ? state(String(count('warning')), 'warn') : 0],
  [
    'Looked at',
    html`${report.servers} servers, ${report.tenants.toLocaleString('en')} tenants, ${report.unchanged.toLocaleString('en')} of them unchanged`,
  ],
])}
${check}
${findings.length === 0 ? html`<p class="empty">${state('good', 'good')} Nothing is wrong.</p>` : ''}
${findings.slice((page - 1) * pageSize, page * pageSize).map(findingView)}
${pager('/findings', {}, page, pageSize, findings.length)}`;
  return { title: 'Findings', main };
}

/** Errors first, then warnings; what was repaired or accepted is last. */
function rank({ severity, fixed, accepted }: ReportedFinding): number {
  return (severity === 'error' ? 0 : 1) + (fixed || accepted ? 2 : 0);
}

function findingView(finding: ReportedFinding): Html {
  const { id, check, severity, tenant, server, problem, remedy, fixed, accepted } = finding;
  const word = fixed ? state('repaired', 'good') : accepted ? state('accepted') : state(severity);
  return html`<section class="finding${fixed || accepted ? ' settled' : ''}" id="${id}"><h2>${word} ${tenant ? tenantLink(tenant) : server}</h2>
<p>${problem}</p>
<p class="remedy">${remedy}</p>
<p class="hint"><code>${check}</code> <code>${id}</code>${accepted ? html` Accepted by ${accepted.by}, ${time(accepted.at)}: ${accepted.reason}` : ''}</p>
${fixed ? '' : accepted ? actions(operationLink('doctor reopen', 'Open it again', { finding: id })) : actions(...(remedy.includes('doctor --fix') ? [repair] : []), operationLink('doctor accept', 'Let it stay', { finding: id }))}</section>`;
}
