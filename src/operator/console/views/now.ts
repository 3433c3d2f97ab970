import { tenantHead } from '../../../control/tenant-head.ts';
import { type Html, html } from '../../../lib/html/html.ts';
import { countUnarchived } from '../../backup/archive-ages.ts';
import { countText } from '../../command/texts.ts';
import { readFindings } from '../../doctor/read-findings.ts';
import { lastRoutineRuns } from '../../registry/list-actions.ts';
import { readFleetHealth } from '../../registry/read-tenants.ts';
import { type HealthReason, healthStates } from '../../registry/tenant-health.ts';
import { countFleet } from '../../schema/fleet-status.ts';
import { listProcesses } from '../../servers/processes.ts';
import { linkCommands } from '../command-line.ts';
import type { ConsolePage, PageRequest } from '../console-page.ts';
import { inlineCode, numberText, shorten, state, time } from '../format.ts';
import { checkNowButton, severity } from '../health-view.ts';
import { actions, operationLink, tenantLink, tenantPath, withQuery } from '../links.ts';
import type { Offer } from '../offered.ts';
import { facts, table } from '../view.ts';
import { changesSince } from './findings.ts';
import { routineCommands } from './operator-log.ts';

const maxShown = 8;
/** The number of reasons of one tenant that are shown. */
const maxReasons = 3;
/** A timer that ran in the last month, but not within this time, counts as stopped. */
const stoppedAfterMs = 48 * 3_600_000;

/** A fault that needs attention, with its remedy. */
interface Concern {
  readonly severity: HealthReason['severity'];
  readonly text: Html;
  /** The time since which the fault is there, if that is known. */
  readonly since?: string | null;
  readonly remedy: Html;
}

/** The check whose result this page computes itself, and more recently than the last report. */
const knownBetter = 'archives_unproved';

/**
 * The order of severities, the worst first. A fault whose remedy was carried out, and that was
 * not checked again, comes last.
 */
const order: readonly HealthReason['severity'][] = ['error', 'warning', 'unchecked', 'done'];

/** The page of all that needs attention, worst first, and of the health of the fleet. */
export async function nowPage(request: PageRequest): Promise<ConsolePage> {
  const { control } = request;
  const head = await tenantHead();
  const fleet = await countFleet(control);
  const tenants = fleet.reduce((total, each) => total + each.tenants, 0);
  const { counts, troubled, total, checkedAt } = await readFleetHealth(control, maxShown);
  const concerns = [
    ...tenantConcerns(request.offered, troubled, total, counts.unwell > maxShown),
    ...(await serverConcerns(request)),
    ...(await archiveConcerns(request)),
    ...(await processConcerns(request)),
    ...(await timerConcerns(request)),
    ...when(isLongAgo(checkedAt), {
      severity: 'warning',
      text: html`doctor looked last ${time(checkedAt)}`,
      remedy: html`Check now`,
    }),
  ].sort((one, other) => order.indexOf(one.severity) - order.indexOf(other.severity));

  const main = html`${tenants === 0 ? firstSteps : ''}
${facts(
  ['Checked by doctor', checkedAt ? time(checkedAt) : state('never', 'warn')],
  ['Changes since then', checkedAt ? await changesSince(control, checkedAt) : undefined],
  ...healthStates.map(health => [healthLabels[health], countLink(health, counts[health])] as const),
)}
${actions(checkNowButton(request))}
${table(
  `Needs attention (${concerns.length})`,
  concerns,
  state('Nothing needs attention.', 'good'),
  [
    ['What', ({ text }) => text],
    ['How bad', each => severity(each.severity)],
    ['Since', ({ since }) => time(since)],
    ['What to do', ({ remedy }) => remedy],
  ],
)}
${table(
  html`The fleet by version and state. This build has ${inlineCode(head)}`,
  fleet,
  'There is no tenant.',
  [
    ['Schema version', ({ schemaVersion }) => inlineCode(schemaVersion ?? 'between versions')],
    ['State', 'status'],
    [
      'Tenants',
      ({ status, schemaVersion, tenants }) =>
        html`<a href="${withQuery('/tenants', { status, version: schemaVersion ?? 'between' })}">${numberText(tenants)}</a>`,
    ],
  ],
)}`;
  return { title: 'Now', main };
}

const healthLabels = {
  well: 'Tenants that are well',
  unchecked: 'Not checked yet',
  warning: 'With a warning',
  unwell: 'Unwell',
} as const;

function countLink(health: keyof typeof healthLabels, count: number): Html | number {
  if (count === 0) return 0;

  return html`<a href="${withQuery('/tenants', { health })}">${state(health)} ${numberText(count)}</a>`;
}

const firstSteps = html`<div class="note">
<p><strong>This installation has no tenant yet.</strong>
A tenant is a company with a database of its own.
Name the first one, and the e-mail address of its administrator:
the console makes the database, the roles, a signing key and a password.</p>
<p>${operationLink('provision', 'Provision the first tenant')}</p></div>`;

/** A concern, if its condition holds. */
const when = (isSo: boolean, concern: Concern): Concern[] => (isSo ? [concern] : []);

/** One row for each tenant, with all of its concerns. */
function tenantConcerns(
  offered: Offer,
  troubled: Awaited<ReturnType<typeof readFleetHealth>>['troubled'],
  total: number,
  hasMoreUnwell: boolean,
): Concern[] {
  const concerns = troubled.map(({ slug, reasons }): Concern => {
    const shown = reasons.slice(0, maxReasons);
    const left = reasons.length - shown.length;
    const more =
      left > 0 ? html`<li><a href="${tenantPath(slug)}#health">and ${left} more</a></li>` : '';

    return {
      severity: reasons[0]?.severity ?? 'unchecked',
      text: html`${tenantLink(slug)}<ul class="plain">${shown.map(({ severity: is, text }) => html`<li>${is === 'done' ? html`${severity(is)}: ` : ''}${shorten(text)}</li>`)}${more}</ul>`,
      since: reasons.flatMap(({ since }) => since ?? []).sort()[0] ?? null,
      remedy: html`<ul class="plain">${shown.map(each => html`<li>${remedyOf(each, offered)}</li>`)}</ul>`,
    };
  });
  const list = hasMoreUnwell
    ? html`<a href="/tenants?health=unwell">All that are unwell</a>`
    : html`<a href="/tenants?sort=-health">All tenants, the worst first</a>`;

  return [
    ...concerns,
    ...when(total > maxShown, {
      severity: hasMoreUnwell ? 'error' : 'warning',
      text: html`and ${countText(total - maxShown, 'more tenant')}`,
      remedy: list,
    }),
  ];
}

/**
 * Returns the remedy of a concern: for a finding a link, because a row has no room for its
 * text.
 */
function remedyOf(
  { finding, remedy }: Pick<HealthReason, 'finding' | 'remedy'>,
  offered: Offer,
): Html {
  return finding
    ? html`<a href="${withQuery('/findings', { id: finding })}#${finding}">See the remedy</a>`
    : linkCommands(remedy, offered);
}

/** The findings that concern no tenant. */
async function serverConcerns(request: PageRequest): Promise<Concern[]> {
  const { control, offered } = request;
  const found = await readFindings(control, { tenant: null, limit: maxShown });
  if (!found) {
    const text = html`doctor has never looked: nobody knows whether the tenants are well`;
    return [{ severity: 'warning', text, remedy: html`Check now` }];
  }
  const open = found.findings.filter(({ fixed, check }) => !fixed && check !== knownBetter);
  const total = found.errors + found.warnings + found.done;

  return [
    ...open.map(
      ({ severity: is, isDone, server, problem, remedy, id }): Concern => ({
        severity: isDone ? 'done' : is,
        text: html`${server}: ${problem}`,
        remedy: remedyOf({ finding: id, remedy }, offered),
      }),
    ),
    ...when(total > maxShown, {
      severity: found.errors > maxShown ? 'error' : 'warning',
      text: html`and ${countText(total - maxShown, 'more finding')} about servers`,
      remedy: html`<a href="/findings">All findings</a>`,
    }),
  ];
}

async function archiveConcerns({ control }: PageRequest): Promise<Concern[]> {
  const { tenants, without, isProved } = await countUnarchived(control);

  return [
    ...when(without > 0, {
      severity: 'warning',
      text: html`Tenants without an archive: ${numberText(without)} of ${numberText(tenants)}`,
      remedy: operationLink('backup run', 'Archive them', { all: 'on' }),
    }),
    ...when(tenants > without && !isProved, {
      severity: 'warning',
      text: html`No archive has passed a drill`,
      remedy: operationLink('backup drill', 'Start a drill'),
    }),
  ];
}

async function processConcerns({ control }: PageRequest): Promise<Concern[]> {
  const processes = await listProcesses(control);
  const silent = processes.filter(({ kind, isRunning }) => kind === 'service' && !isRunning).length;

  return when(silent > 0, {
    severity: 'warning',
    text: html`Processes of the service that have been silent for five seconds: ${numberText(silent)}`,
    remedy: html`<a href="/capacity">Processes</a>`,
  });
}

async function timerConcerns({ control, offered }: PageRequest): Promise<Concern[]> {
  const runs = await lastRoutineRuns(control, routineCommands(offered));

  return runs.flatMap(({ command, state: is, startedAt, error }): Concern[] => {
    const remedy = operationLink(command, `Open ${command}`);
    if (is === 'failed') {
      return [
        {
          severity: 'error',
          text: html`${command} failed: ${shorten(error ?? '')}`,
          since: startedAt,
          remedy,
        },
      ];
    }

    const text = html`${command} ran last ${time(startedAt)}: its timer may have stopped`;
    return when(isLongAgo(startedAt), { severity: 'warning', text, remedy });
  });
}

const isLongAgo = (at: string | null): boolean =>
  at !== null && Date.now() - Date.parse(at) > stoppedAfterMs;
