import { type Html, html } from '../../../docs/html.ts';
import { readArchiveAges } from '../../backup/archive-ages.ts';
import { readFindings } from '../../doctor/read-findings.ts';
import { countFleet, readFailing } from '../../schema/fleet-status.ts';
import { tenantHead } from '../../schema/tenant-head.ts';
import { lastRoutineRuns } from '../../tenants/list-actions.ts';
import { listProcesses } from '../../tenants/processes.ts';
import type { ConsolePage, PageRequest } from '../console-page.ts';
import { code, numberText, shorten, state, time } from '../format.ts';
import { operationLink, rolloutLink, tenantLink, withQuery } from '../links.ts';
import { table } from '../view.ts';
import { routineCommands } from './operator-log.ts';

const maxShown = 8;
/** A timer that ran in the last month, but not within this time, counts as stopped. */
const stoppedAfterMs = 48 * 3_600_000;

/** What needs attention, with its remedy. */
type Concern = readonly [severity: 'error' | 'warning', text: Html, remedy: Html];

/** What needs attention, worst first, and the fleet by version and state. */
export async function nowPage(request: PageRequest): Promise<ConsolePage> {
  const { control } = request;
  const head = await tenantHead();
  const fleet = await countFleet(control);
  const tenants = sum(fleet);
  const lagging = sum(fleet.filter(({ schemaVersion }) => schemaVersion !== null && schemaVersion < head));
  const migrate = operationLink('migrate', 'Migrate all', { all: 'on', canary: '2' });
  const concerns = [
    ...(await failingConcerns(request)),
    ...(await findingConcerns(request)),
    ...(await archiveConcerns(request)),
    ...(await processConcerns(request)),
    ...(await timerConcerns(request)),
    ...when(lagging > 0, 'warning', html`Tenants behind this build: ${numberText(lagging)}`, migrate),
  ].sort(([a], [b]) => Number(a === 'warning') - Number(b === 'warning'));
  const main = html`${tenants === 0 ? firstSteps : ''}
${table(`Needs attention (${concerns.length})`, concerns, state('Nothing needs attention.', 'good'), [
  ['What', ([, text]) => text],
  ['How bad', ([severity]) => state(severity)],
  ['What to do', ([, , remedy]) => remedy],
])}
${table(html`The fleet by version and state. This build has ${code(head)}`, fleet, 'There is no tenant.', [
  ['Schema version', ({ schemaVersion }) => code(schemaVersion ?? 'between versions')],
  ['State', 'status'],
  [
    'Tenants',
    ({ status, schemaVersion, tenants }) =>
      html`<a href="${withQuery('/tenants', { status, version: schemaVersion ?? 'between' })}">${numberText(tenants)}</a>`,
  ],
])}`;
  return { title: 'Now', main };
}

const sum = (fleet: Awaited<ReturnType<typeof countFleet>>): number =>
  fleet.reduce((total, { tenants }) => total + tenants, 0);

const firstSteps = html`<div class="note"><p><strong>This installation has no tenant yet.</strong> A tenant is a company with a database of its own.
Name the first one, and the e-mail address of its administrator: the console makes the database, the roles, a signing key and a password.</p>
<p>${operationLink('provision', 'Provision the first tenant')}</p></div>`;

/** A concern, if it is one. */
const when = (isSo: boolean, ...concern: Concern): Concern[] => (isSo ? [concern] : []);

/** What follows the first ones of `total` of a kind. */
const more = (total: number, severity: Concern[0], list: Html): Concern[] =>
  when(total > maxShown, severity, html`and ${numberText(total - maxShown)} more`, list);

async function failingConcerns({ control }: PageRequest): Promise<Concern[]> {
  const { failing, total } = await readFailing(control, { limit: maxShown });
  const retry = operationLink('migrate', 'Retry all that failed', { retryFailed: 'on' });
  const concerns = failing.map(({ slug, run, error }): Concern => {
    const remedy = html`${rolloutLink(run)} ${operationLink('migrate', 'Migrate it again', { slug })}`;
    return ['error', html`The last migration of ${tenantLink(slug)} failed: ${shorten(error)}`, remedy];
  });
  return [...concerns, ...more(total, 'error', html`<a href="/rollouts">All that failed</a> ${retry}`)];
}

async function findingConcerns({ control }: PageRequest): Promise<Concern[]> {
  const found = await readFindings(control, { limit: maxShown });
  const check = operationLink('doctor', 'Check now');
  if (!found) return [['warning', html`doctor has never looked`, check]];
  const { findings, errors, warnings, madeAt } = found;
  const concerns = findings.slice(0, errors + warnings).map(({ severity, tenant, server, problem, id }): Concern => {
    const text = html`${tenant ? tenantLink(tenant) : server}: ${problem}`;
    return [severity, text, html`<a href="/findings#${id}">See the remedy</a>`];
  });
  return [
    ...concerns,
    ...more(errors + warnings, errors > maxShown ? 'error' : 'warning', html`<a href="/findings">All findings</a>`),
    ...when(isLongAgo(madeAt), 'warning', html`doctor looked last ${time(madeAt)}`, check),
  ];
}

async function archiveConcerns({ control }: PageRequest): Promise<Concern[]> {
  const { tenants, without, faulty, isProved } = await readArchiveAges(control, { limit: 0 });
  const recovery = html`<a href="/recovery">Recovery</a>`;
  const archive = operationLink('backup run', 'Archive them', { all: 'on' });
  const prove = operationLink('backup drill', 'Prove some');
  const missing = html`${numberText(without)} of ${numberText(tenants)} tenants have no archive`;
  return [
    ...when(faulty > 0, 'error', html`Tenants whose newest archive is faulty: ${numberText(faulty)}`, recovery),
    ...when(without > 0, 'warning', missing, archive),
    ...when(tenants > without && !isProved, 'warning', html`No archive was ever restored as a proof`, prove),
  ];
}

async function processConcerns({ control }: PageRequest): Promise<Concern[]> {
  const silent = (await listProcesses(control)).filter(
    ({ kind, isRunning }) => kind === 'service' && !isRunning,
  ).length;
  const text = html`Processes of the service that have been silent for five seconds: ${numberText(silent)}`;
  return when(silent > 0, 'warning', text, html`<a href="/capacity">Processes</a>`);
}

async function timerConcerns({ control, offered }: PageRequest): Promise<Concern[]> {
  const runs = await lastRoutineRuns(control, routineCommands(offered));
  return runs.flatMap(({ command, state, startedAt, error }) => {
    const remedy = operationLink(command, `Open ${command}`);
    const at = time(startedAt);
    return state === 'failed'
      ? when(true, 'error', html`${command} failed ${at}: ${shorten(error ?? '')}`, remedy)
      : when(isLongAgo(startedAt), 'warning', html`${command} ran last ${at}: its timer may have stopped`, remedy);
  });
}

const isLongAgo = (at: string): boolean => Date.now() - Date.parse(at) > stoppedAfterMs;
