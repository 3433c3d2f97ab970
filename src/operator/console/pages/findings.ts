import { type Html, html } from '../../../docs/html.ts';
import { countText } from '../../command/texts.ts';
import { findingKey } from '../../doctor/finding.ts';
import { type ReportedFinding, readAcceptances, readStoredReport } from '../../doctor/reports.ts';
import { linkCommands, type Offer } from '../command-links.ts';
import type { PageRequest } from '../console-services.ts';
import { fault, numberText, state, time } from '../format.ts';
import { operationLink, tenantLink, withQuery } from '../links.ts';
import { actions, facts, pageNumber, pager } from '../view.ts';

const pageSize = 40;
const check = operationLink('doctor', 'Check now');
const repair = operationLink('doctor', 'Repair all that has no risk', { fix: 'on' });

/**
 * Returns the last report of doctor with what has been accepted since: the worst first, then what needs nothing more.
 * @param isOf which findings
 */
export async function readReport(
  { statements }: PageRequest['services']['control'],
  isOf: (finding: ReportedFinding) => boolean = () => true,
) {
  const stored = await readStoredReport(statements);
  if (!stored) return undefined;
  const acceptances = await readAcceptances(statements);
  const findings = stored.report.findings
    .filter(isOf)
    .map(finding => ({ ...finding, accepted: acceptances.get(findingKey(finding)) ?? null }))
    .sort((a, b) => rank(a) - rank(b));
  return { ...stored, findings, open: findings.filter(({ fixed, accepted }) => !fixed && !accepted) };
}

/** A number of findings, which leads to them. */
export function findingsLink(count: number, of: { server: string } | { tenant: string }): Html {
  return html`<a href="${withQuery('/findings', of)}">${fault(count, 'warn')}</a>`;
}

/** The last report of doctor; of one server or tenant, if the address names it. */
export async function findingsPage({ services: { control, offered }, query }: PageRequest) {
  const found = await readReport(control);
  const links = actions(check, operationLink('doctor', 'Check every database', { full: 'on' }), repair);
  if (!found)
    return { title: 'Findings', main: html`<h1>Findings</h1><p class="empty">doctor has not looked yet.</p>${links}` };
  const { report, madeAt, madeBy, open } = found;
  const [server, tenant, page] = [query('server'), query('tenant'), pageNumber(query('page'))];
  const findings = found.findings.filter(
    each => (!server || (each.server === server && each.tenant === null)) && (!tenant || each.tenant === tenant),
  );
  const of = tenant ?? server;
  const count = (severity: string): number => open.filter(each => each.severity === severity).length;
  const main = html`<h1>Findings${of && ` of ${of}`}</h1>
${facts(
  ['Looked', html`${time(madeAt)} by ${madeBy}`],
  ['Errors', fault(count('error'), 'bad')],
  ['Warnings', fault(count('warning'), 'warn')],
  [
    'Looked at',
    `${countText(report.servers, 'server')}, ${countText(report.tenants, 'tenant')}, ${numberText(report.unchanged)} of them unchanged`,
  ],
)}
${links}
${of && html`<p><a href="/findings">All findings</a></p>`}
${findings.length === 0 ? html`<p class="empty">${state('good', 'good')} Nothing is wrong.</p>` : ''}
${findings.slice((page - 1) * pageSize, page * pageSize).map(finding => findingView(finding, offered))}
${pager('/findings', { server, tenant }, page, pageSize, findings.length)}`;
  return { title: 'Findings', main };
}

/** Errors first, then warnings; what was repaired or accepted is last. */
function rank({ severity, fixed, accepted }: ReportedFinding): number {
  return (severity === 'error' ? 0 : 1) + (fixed || accepted ? 2 : 0);
}

function findingView(finding: ReportedFinding, offered: Offer): Html {
  const { id, check, severity, tenant, server, problem, remedy, fixed, accepted } = finding;
  const isSettled = fixed || accepted;
  const word = fixed ? state('repaired', 'good') : accepted ? state('accepted') : state(severity);
  const links = accepted
    ? [operationLink('doctor reopen', 'Open it again', { finding: id })]
    : [
        ...(remedy.includes('doctor --fix') ? [repair] : []),
        operationLink('doctor accept', 'Let it stay', { finding: id }),
      ];
  return html`<section class="finding${isSettled ? ' settled' : ''}" id="${id}"><h2>${word} ${tenant ? tenantLink(tenant) : server}</h2>
<p>${problem}</p>
<p class="remedy">${linkCommands(remedy, offered)}</p>
<p class="hint"><code>${check}</code> <code>${id}</code>${accepted ? html` Accepted by ${accepted.by}, ${time(accepted.at)}: ${accepted.reason}` : ''}</p>
${fixed ? '' : actions(...links)}</section>`;
}
