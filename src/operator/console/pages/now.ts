import { type Html, html } from '../../../docs/html.ts';
import { readArchiveAges } from '../../archives/archive-ages.ts';
import { readFindings } from '../../doctor/read-findings.ts';
import { countFleet, readFailing } from '../../schema/fleet-status.ts';
import { listRuns } from '../../schema/list-runs.ts';
import { tenantHead } from '../../schema/tenant-head.ts';
import { lastRoutineRuns } from '../../tenants/list-actions.ts';
import { listProcesses } from '../../tenants/processes.ts';
import type { ConsoleServices, PageRequest } from '../console-services.ts';
import { code, numberText, shorten, state, time } from '../format.ts';
import { operationLink, tenantLink, withQuery } from '../links.ts';
import { facts, table } from '../view.ts';
import { isSilent } from './capacity.ts';
import { routineCommands } from './operator-log.ts';

const maxShown = 8;
/** A timer that ran in the last month, but not within this time, counts as stopped. */
const stoppedAfterMs = 48 * 3_600_000;

/** What needs attention, with its remedy. */
type Concern = readonly [severity: 'error' | 'warning', text: Html, remedy: Html];

/** What needs attention, worst first, and the fleet by version and state. */
export async function nowPage({ services }: PageRequest) {
  const { control, runs } = services;
  const head = await tenantHead();
  const fleet = await countFleet(control);
  const [lastRun] = await listRuns(control, 1);
  const concerns = [
    ...(await failingConcerns(services)),
    ...(await findingConcerns(services)),
    ...(await archiveConcerns(services)),
    ...(await processConcerns(services)),
    ...(await timerConcerns(services)),
    ...laggingConcern(fleet, head),
  ].sort(([a], [b]) => Number(a === 'warning') - Number(b === 'warning'));
  const tenants = fleet.reduce((sum, each) => sum + each.tenants, 0);
  const main = html`<h1>Now</h1>
${tenants === 0 ? firstSteps : ''}
${table(`Needs attention (${concerns.length})`, concerns, state('Nothing needs attention.', 'good'), [
  ['What', ([, text]) => text],
  ['How bad', ([severity]) => state(severity)],
  ['What to do', ([, , remedy]) => remedy],
])}
${facts(
  ['This build', code(head)],
  ['Tenants', html`<a href="/tenants">${numberText(tenants)}</a>`],
  [
    'Last migration run',
    lastRun &&
      html`<a href="/rollouts/${lastRun.id}">${lastRun.id}</a>, ${state(lastRun.state)}, ${time(lastRun.startedAt)}`,
  ],
  ['Commands running here', html`<a href="/log">${runs.running.length}</a>`],
)}
${table('The fleet by version and state', fleet, 'There is no tenant.', [
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

const firstSteps = html`<div class="note"><p><strong>This installation has no tenant yet.</strong> A tenant is a company with a database of its own.
Name the first one, and the e-mail address of its administrator: the console makes the database, the roles, a signing key and a password.</p>
<p>${operationLink('provision', 'Provision the first tenant')}</p></div>`;

async function failingConcerns({ control }: ConsoleServices): Promise<Concern[]> {
  const { failing, total } = await readFailing(control, maxShown);
  const concerns = failing.map(
    ({ slug, run, error }): Concern => [
      'error',
      html`The last migration of ${tenantLink(slug)} failed: <span class="cause">${shorten(error)}</span>`,
      html`<a href="/rollouts/${run}">Run ${run}</a> ${operationLink('migrate', 'Migrate it again', { slug })}`,
    ],
  );
  const retry = operationLink('migrate', 'Retry all that failed', { retryFailed: 'on' });
  return [...concerns, ...more(total, 'error', html`<a href="/rollouts">All that failed</a> ${retry}`)];
}

/** A concern, if it is one. */
const when = (isSo: boolean, ...concern: Concern): Concern[] => (isSo ? [concern] : []);

/** What follows the first ones of `total` of a kind. */
const more = (total: number, severity: Concern[0], list: Html): Concern[] =>
  when(total > maxShown, severity, html`and ${numberText(total - maxShown)} more`, list);

async function findingConcerns({ control }: ConsoleServices): Promise<Concern[]> {
  const found = await readFindings(control, { limit: maxShown });
  const check = operationLink('doctor', 'Check now');
  if (!found) return [['warning', html`doctor has never looked`, check]];
  const { findings, errors, warnings, madeAt } = found;
  const concerns = findings
    .slice(0, errors + warnings)
    .map(
      ({ severity, tenant, server, problem, id }): Concern => [
        severity,
        html`${tenant ? tenantLink(tenant) : server}: ${problem}`,
        html`<a href="/findings#${id}">Finding ${id}</a>`,
      ],
    );
  return [
    ...concerns,
    ...more(errors + warnings, errors > maxShown ? 'error' : 'warning', html`<a href="/findings">All findings</a>`),
    ...when(isLongAgo(madeAt), 'warning', html`doctor looked last ${time(madeAt)}`, check),
  ];
}

async function archiveConcerns({ control }: ConsoleServices): Promise<Concern[]> {
  const { tenants, without, faulty, isProved } = await readArchiveAges(control, 0);
  const recovery = html`<a href="/recovery">Recovery</a>`;
  const archive = operationLink('backup run', 'Archive them', { all: 'on' });
  const prove = operationLink('backup drill', 'Prove some');
  return [
    ...when(faulty > 0, 'error', html`The newest archive of ${numberText(faulty)} tenants is faulty`, recovery),
    ...when(
      without > 0,
      'warning',
      html`${numberText(without)} of ${numberText(tenants)} tenants have no archive`,
      archive,
    ),
    ...when(tenants > without && !isProved, 'warning', html`No archive was ever restored as a proof`, prove),
  ];
}

async function processConcerns({ control }: ConsoleServices): Promise<Concern[]> {
  const silent = (await listProcesses(control)).filter(isSilent);
  const processes = html`<a href="/capacity">Processes</a>`;
  const gone = html`A process is gone, and its connections may still exist`;
  return silent
    .slice(0, maxShown)
    .map(({ host, pid, heartbeatAge }) => [
      'warning',
      host === null ? gone : html`Process ${pid ?? ''} on ${host} has been silent for ${heartbeatAge ?? ''} s`,
      processes,
    ]);
}

async function timerConcerns({ control, offered }: ConsoleServices): Promise<Concern[]> {
  const runs = await lastRoutineRuns(control, routineCommands(offered));
  return runs.flatMap(({ command, state, startedAt, error }): Concern[] => {
    const remedy = operationLink(command, `Open ${command}`);
    const at = time(startedAt);
    if (state === 'failed')
      return [['error', html`${command} failed ${at}: <span class="cause">${shorten(error ?? '')}</span>`, remedy]];
    return when(isLongAgo(startedAt), 'warning', html`${command} ran last ${at}: its timer may have stopped`, remedy);
  });
}

function laggingConcern(fleet: Awaited<ReturnType<typeof countFleet>>, head: string): Concern[] {
  const lagging = fleet.filter(({ schemaVersion }) => schemaVersion !== null && schemaVersion < head);
  const tenants = lagging.reduce((sum, each) => sum + each.tenants, 0);
  const remedy = operationLink('migrate', 'Migrate all', { all: 'on', canary: '2' });
  return when(tenants > 0, 'warning', html`${numberText(tenants)} tenants are behind this build`, remedy);
}

const isLongAgo = (at: string): boolean => Date.now() - Date.parse(at) > stoppedAfterMs;
