import { type Html, html } from '../../../docs/html.ts';
import { countText } from '../../command/texts.ts';
import { readFindings } from '../../doctor/read-findings.ts';
import type { ReportedFinding } from '../../doctor/reports.ts';
import { linkCommands } from '../command-links.ts';
import type { ConsolePage } from '../console-page.ts';
import type { PageRequest } from '../console-services.ts';
import { fault, numberText, state, time } from '../format.ts';
import { hiddenInputs, operationLink, operationPath, tenantLink, withQuery } from '../links.ts';
import type { Offer } from '../offered.ts';
import { actions, facts, pageNumber, pager } from '../view.ts';

const pageSize = 40;

/** A number of findings, which leads to them. */
export function findingsLink(count: number, of: { server: string } | { tenant: string }): Html {
  return html`<a href="${withQuery('/findings', of)}">${fault(count, 'warn')}</a>`;
}

/** The last report of doctor; of one server or tenant, if the address names it. */
export async function findingsPage({ services, query }: PageRequest): Promise<ConsolePage> {
  const { control, offered } = services;
  const [server, tenant, page] = [query('server'), query('tenant'), pageNumber(query('page'))];
  const where = { server, tenant: tenant ?? (server && null) };
  const found = await readFindings(control, { ...where, limit: pageSize, offset: (page - 1) * pageSize });
  const links = actions(
    operationLink('doctor', 'Check now'),
    operationLink('doctor', 'Check every database', { full: 'on' }),
  );
  if (!found) return { title: 'Findings', main: html`<p class="note">doctor has not looked yet.</p>${links}` };
  const { findings, total } = found;
  const of = tenant ?? server;
  const main = html`${facts(
    ['Looked', html`${time(found.madeAt)} by ${found.madeBy}`],
    ['Errors', fault(found.errors, 'bad')],
    ['Warnings', fault(found.warnings, 'warn')],
    [
      'Looked at',
      `${countText(found.servers, 'server')}, ${countText(found.tenants, 'tenant')}, ${numberText(found.unchanged)} of them unchanged`,
    ],
  )}
${links}
${total === 0 ? html`<p class="note">${state('Nothing is wrong.', 'good')}</p>` : ''}
${findings.map(finding => findingView(finding, offered))}
${findings.some(isRepairable) ? repairForm : ''}
${pager('/findings', { server, tenant }, page, pageSize, total)}`;
  return { title: of ? `Findings of ${of}` : 'Findings', above: of ? [['/findings', 'All findings']] : [], main };
}

const isRepairable = ({ repairable, fixed, accepted }: ReportedFinding) => repairable && !fixed && !accepted;

/** Opens the form of the repair with the findings that are selected above it. */
const repairForm = html`<form action="${operationPath('doctor')}" id="repair" class="actions">${hiddenInputs({ fix: 'on' })}
<button>Repair what is selected</button> <span class="hint">Without a selection, all that can be repaired. The plan comes first.</span></form>`;

function findingView(finding: ReportedFinding, offered: Offer): Html {
  const { id, check, severity, tenant, server, problem, remedy, fixed, accepted } = finding;
  const word = fixed ? state('repaired', 'good') : accepted ? state('accepted') : state(severity);
  const selection = html`<label><input type="checkbox" form="repair" name="finding" value="${id}"> Repair it</label>`;
  const links = accepted
    ? [operationLink('doctor reopen', 'Open it again', { finding: id })]
    : [...(isRepairable(finding) ? [selection] : []), operationLink('doctor accept', 'Let it stay', { finding: id })];
  return html`<section class="finding${fixed || accepted ? ' settled' : ''}" id="${id}"><h2>${word} ${tenant ? tenantLink(tenant) : server}</h2>
<p>${problem}</p>
<p>${linkCommands(remedy, offered)}</p>
<p class="hint"><code>${check}</code> <code>${id}</code>${accepted ? html` Accepted by ${accepted.by}, ${time(accepted.at)}: ${accepted.reason}` : ''}</p>
${fixed ? '' : actions(...links)}</section>`;
}
