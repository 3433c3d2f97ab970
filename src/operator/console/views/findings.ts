import { type Html, html } from '../../../lib/html/html.ts';
import { countText } from '../../command/texts.ts';
import { readFindings, type StoredFinding } from '../../doctor/read-findings.ts';
import { listActions } from '../../registry/list-actions.ts';
import { linkCommands } from '../command-line.ts';
import type { ConsolePage, PageRequest } from '../console-page.ts';
import { fault, inlineCode, state, time } from '../format.ts';
import { checkNowButton, severity } from '../health-view.ts';
import { actions, hiddenInputs, operationPath, tenantLink, withQuery } from '../links.ts';
import type { Offer } from '../offered.ts';
import { facts, pager, partOf } from '../view.ts';

const pageSize = 40;
const maxChanges = 100;

/** Returns how many changes operators have made since a moment, as a link to the log. */
export async function changesSince(
  control: PageRequest['control'],
  since: string,
): Promise<Html | number> {
  const { length } = await listActions(control, { since, limit: maxChanges });
  if (length === 0) return 0;

  return html`<a href="/log">${length === maxChanges ? `${maxChanges} or more` : length}</a>: check again`;
}

/** The number of open findings, which leads to them. */
export function findingsLink(
  count: number,
  hasErrors: boolean,
  of: { server: string } | { tenant: string },
) {
  return (
    count &&
    html`<a href="${withQuery('/findings', of)}">${fault(count, hasErrors ? 'bad' : 'warn')}</a>`
  );
}

/** The last report of doctor; of one server or tenant, if the address names it. */
export async function findingsPage(request: PageRequest): Promise<ConsolePage> {
  const { control, offered, query } = request;
  const [server, tenant, id] = [query('server'), query('tenant'), query('id')];
  const links = [checkNowButton(request)];

  const part = partOf(query('page'), pageSize);
  const ids = id === undefined ? undefined : [id];
  const found = await readFindings(control, {
    server,
    tenant: tenant ?? (server && null),
    ids,
    ...part,
  });

  const of = tenant ?? server;
  const title = id ? `Finding ${id}` : of ? `Findings of ${of}` : 'Findings';
  if (!found) return { title, links, main: html`<p class="note">doctor has not looked yet.</p>` };

  const { findings, total, madeAt } = found;
  const main = html`${found.isOfOtherBuild ? otherBuildNote(found.build) : ''}${facts(
    ['Looked', html`${time(madeAt)} by ${found.madeBy}`],
    ['Changes since then', await changesSince(control, madeAt)],
    ['Errors', fault(found.errors, 'bad')],
    ['Warnings', fault(found.warnings, 'warn')],
    ['Done since, not checked again', found.done],
    [
      'Looked at',
      `${countText(found.servers, 'server')} and ${countText(found.tenants, 'tenant')}`,
    ],
  )}
${total === 0 ? html`<p class="note">${id ? 'The last report has no such finding: doctor has looked again since.' : state('Nothing is wrong.', 'good')}</p>` : ''}
${findings.map(finding => findingView(finding, offered, found.isOfOtherBuild, id !== undefined))}
${findings.some(isRepairable) && !found.isOfOtherBuild ? repairForm : ''}
${pager('/findings', { server, tenant }, part, total)}`;

  return { title, above: of || id ? [['/findings', 'All findings']] : [], links, main };
}

const isRepairable = ({ repair, fixed }: StoredFinding): boolean => repair !== null && !fixed;

/** Opens the form of the repair with the findings that are selected above it. */
const repairForm = html`<form action="${operationPath('doctor')}" id="repair" class="actions">${hiddenInputs({ fix: 'on' })}
<button>Repair what is selected</button> <span class="hint">Without a selection, all whose repair has no risk. The plan comes first.</span></form>`;

function otherBuildNote(build: string | undefined): Html {
  return html`<p class="note"><strong>Another build has looked${build === undefined ? '' : html` (${inlineCode(build)})`}.</strong> What it would repair, this one cannot judge: check again before you repair anything.</p>`;
}

/** @param isSelected true for a finding that somebody has picked already */
function findingView(
  finding: StoredFinding,
  offered: Offer,
  isOfOtherBuild: boolean,
  isSelected: boolean,
): Html {
  const { id, check, severity: is, tenant, server, problem, remedy, fixed, isDone } = finding;
  const isOver = fixed || isDone;
  const word = fixed ? state('repaired', 'good') : severity(isDone ? 'done' : is);
  const selection = html`<label><input type="checkbox" form="repair" name="finding" value="${id}"${isSelected ? html` checked` : ''}> Repair it</label>`;
  return html`<section class="note${isOver ? ' hint' : is === 'error' ? ' bad' : ''}" id="${id}"><h2>${word} ${tenant ? tenantLink(tenant) : server}</h2>
<p>${problem}</p>
<p>${isOfOtherBuild ? '' : linkCommands(remedy, offered)}</p>
<p class="hint"><code>${check}</code> <code>${id}</code></p>
${isRepairable(finding) && !isOfOtherBuild ? actions(selection) : ''}</section>`;
}
