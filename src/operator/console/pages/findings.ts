import { type Html, html } from '../../../docs/html.ts';
import { countText } from '../../command/texts.ts';
import { readFindings } from '../../doctor/read-findings.ts';
import type { ReportedFinding } from '../../doctor/reports.ts';
import { listActions } from '../../tenants/list-actions.ts';
import { linkCommands } from '../command-line.ts';
import type { ConsolePage, PageRequest } from '../console-page.ts';
import { fault, state, time } from '../format.ts';
import { actions, hiddenInputs, operationLink, operationPath, tenantLink, withQuery } from '../links.ts';
import type { Offer } from '../offered.ts';
import { facts, pager, partOf } from '../view.ts';

const pageSize = 40;
const maxChanges = 100;
const links = [operationLink('doctor', 'Check now')];

/** The number of open findings, which leads to them. */
export function findingsLink(count: number, hasErrors: boolean, of: { server: string } | { tenant: string }) {
  return count && html`<a href="${withQuery('/findings', of)}">${fault(count, hasErrors ? 'bad' : 'warn')}</a>`;
}

/** The last report of doctor; of one server or tenant, if the address names it. */
export async function findingsPage({ control, offered, query }: PageRequest): Promise<ConsolePage> {
  const [server, tenant] = [query('server'), query('tenant')];
  const part = partOf(query('page'), pageSize);
  const found = await readFindings(control, { server, tenant: tenant ?? (server && null), ...part });
  const of = tenant ?? server;
  const title = of ? `Findings of ${of}` : 'Findings';
  if (!found) return { title, links, main: html`<p class="note">doctor has not looked yet.</p>` };
  const { findings, total, madeAt } = found;
  const changes = (await listActions(control, { since: madeAt, limit: maxChanges })).length;
  const main = html`${facts(
    ['Looked', html`${time(madeAt)} by ${found.madeBy}`],
    ['Changes since then', changes > 0 ? html`<a href="/log">${changes}</a>: check again` : changes],
    ['Errors', fault(found.errors, 'bad')],
    ['Warnings', fault(found.warnings, 'warn')],
    ['Looked at', `${countText(found.servers, 'server')} and ${countText(found.tenants, 'tenant')}`],
  )}
${total === 0 ? html`<p class="note">${state('Nothing is wrong.', 'good')}</p>` : ''}
${findings.map(finding => findingView(finding, offered))}
${findings.some(isRepairable) ? repairForm : ''}
${pager('/findings', { server, tenant }, part, total)}`;
  return { title, above: of ? [['/findings', 'All findings']] : [], links, main };
}

const isRepairable = ({ repair, fixed }: ReportedFinding) => repair !== null && !fixed;

/** Opens the form of the repair with the findings that are selected above it. */
const repairForm = html`<form action="${operationPath('doctor')}" id="repair" class="actions">${hiddenInputs({ fix: 'on' })}
<button>Repair what is selected</button> <span class="hint">Without a selection, all whose repair has no risk. The plan comes first.</span></form>`;

function findingView(finding: ReportedFinding, offered: Offer): Html {
  const { id, check, severity, tenant, server, problem, remedy, fixed } = finding;
  const word = fixed ? state('repaired', 'good') : state(severity);
  const selection = html`<label><input type="checkbox" form="repair" name="finding" value="${id}"> Repair it</label>`;
  return html`<section class="note${fixed ? ' hint' : severity === 'error' ? ' bad' : ''}" id="${id}"><h2>${word} ${tenant ? tenantLink(tenant) : server}</h2>
<p>${problem}</p>
<p>${linkCommands(remedy, offered)}</p>
<p class="hint"><code>${check}</code> <code>${id}</code></p>
${isRepairable(finding) ? actions(selection) : ''}</section>`;
}
