import { type Html, html } from '../../../docs/html.ts';
import { countArchiveAges } from '../../archives/archive-ages.ts';
import { readStoredReport } from '../../doctor/reports.ts';
import { countFleet, readFailing } from '../../schema/fleet-status.ts';
import { listRuns } from '../../schema/list-runs.ts';
import { tenantHead } from '../../schema/tenant-head.ts';
import { listProcesses } from '../../tenants/processes.ts';
import { lastRoutineRuns } from '../../tenants/routine-runs.ts';
import type { ConsoleServices, PageRequest } from '../console-services.ts';
import { facts, operationLink, shorten, state, table, tenantLink, time } from '../view.ts';
import { isSilent } from './capacity.ts';
import { currentFindings } from './findings.ts';
import { routineCommands } from './operator-log.ts';

const maxShown = 8;
/** A timer that ran in the last month, and not for so long, is taken for one that has stopped. */
const stoppedAfterMs = 48 * 3_600_000;

/** What needs attention if `isSo`, with its remedy. */
type Concern = readonly [isSo: boolean, severity: 'error' | 'warning', text: Html, remedy: Html];

/** What needs attention, worst first, and the fleet by version and state. */
export async function nowPage({ services }: PageRequest) {
  const { control } = services;
  const head = await tenantHead();
  const fleet = await countFleet(control);
  const [lastRun] = await listRuns(control, 1);
  const concerns = [
    ...failingConcerns(await readFailing(control, maxShown + 1)),
    ...(await findingConcerns(services)),
    ...(await archiveConcerns(services)),
    ...(await processConcerns(services)),
    ...(await timerConcerns(services)),
    laggingConcern(fleet, head),
  ]
    .filter(([isSo]) => isSo)
    .sort(([, a], [, b]) => Number(a === 'warning') - Number(b === 'warning'));
  const tenants = fleet.reduce((sum, each) => sum + each.tenants, 0);
  const main = html`<h1>Now</h1>
${tenants === 0 ? firstSteps : ''}
${table({
  caption: concerns.length === 0 ? 'Needs attention' : `Needs attention (${concerns.length})`,
  columns: ['What', 'How bad', 'What to do'],
  rows: concerns.map(([, severity, text, remedy]) => [text, state(severity), remedy]),
  empty: html`${state('good', 'good')} Nothing needs attention.`,
})}
${facts([
  ['This build', html`<code>${head}</code>`],
  ['Tenants', html`<a href="/tenants">${tenants.toLocaleString('en')}</a>`],
  [
    'Last migration run',
    lastRun &&
      html`<a href="/rollouts/${lastRun.id}">${lastRun.id}</a>, ${state(lastRun.state)}, ${time(lastRun.startedAt)}`,
  ],
  ['Commands running here', html`<a href="/log">${services.runs.running.length}</a>`],
])}
${table({
  caption: 'The fleet by version and state',
  columns: ['Schema version', 'State', { name: 'Tenants', isNumber: true }],
  rows: fleet.map(({ schemaVersion, status, tenants }) => [
    html`<code>${schemaVersion ?? 'between versions'}</code>`,
    state(status),
    html`<a href="/tenants?${new URLSearchParams({ status, version: schemaVersion ?? 'between' }).toString()}">${tenants.toLocaleString('en')}</a>`,
  ]),
  empty: 'There is no tenant.',
})}`;
  return { title: 'Now', main };
}

const firstSteps = html`<div class="note"><p><strong>This installation has no tenant yet.</strong> A tenant is a company with a database of its own.
Name the first one, and the e-mail address of its administrator: the console makes the database, the roles, a signing key and a password.</p>
<p>${operationLink('provision', 'Provision the first tenant')}</p></div>`;

function failingConcerns(failing: Awaited<ReturnType<typeof readFailing>>): Concern[] {
  const shown = failing
    .slice(0, maxShown)
    .map(
      ({ slug, run, error }): Concern => [
        true,
        'error',
        html`The last migration of ${tenantLink(slug)} failed: <span class="cause">${shorten(error)}</span>`,
        html`<a href="/rollouts/${run}">Run ${run}</a> ${operationLink('migrate', 'Migrate it again', { slug })}`,
      ],
    );
  const retry = operationLink('migrate', 'Retry all that failed', { retryFailed: 'on' });
  return [...shown, [failing.length > maxShown, 'error', html`The last migration of further tenants failed`, retry]];
}

async function findingConcerns({ control }: ConsoleServices): Promise<Concern[]> {
  const stored = await readStoredReport(control.statements);
  const check = operationLink('doctor', 'Check now');
  if (!stored) return [[true, 'warning', html`doctor has never looked`, check]];
  const findings = await currentFindings(control, stored.report.findings);
  const open = findings.filter(({ fixed, accepted }) => !fixed && !accepted);
  const further = open.slice(maxShown);
  const [worst] = further;
  return [
    ...open
      .slice(0, maxShown)
      .map(
        ({ severity, tenant, server, problem, id }): Concern => [
          true,
          severity,
          html`${tenant ? tenantLink(tenant) : server}: ${problem}`,
          html`<a href="/findings#${id}">Finding ${id}</a>`,
        ],
      ),
    [
      further.length > 0,
      worst?.severity ?? 'warning',
      html`${further.length} further findings`,
      html`<a href="/findings">All findings</a>`,
    ],
    [isLongAgo(stored.madeAt), 'warning', html`doctor looked last ${time(stored.madeAt)}`, check],
  ];
}

async function archiveConcerns({ control }: ConsoleServices): Promise<Concern[]> {
  const { tenants, without, faulty, proved } = await countArchiveAges(control);
  return [
    [
      faulty > 0,
      'error',
      html`The newest archive of ${faulty} tenants is faulty`,
      html`<a href="/recovery">Recovery</a>`,
    ],
    [
      without > 0,
      'warning',
      html`${without} of ${tenants} tenants have no archive`,
      operationLink('backup run', 'Archive them', { all: 'on' }),
    ],
    [
      tenants > without && proved === 0,
      'warning',
      html`No archive was ever restored as a proof`,
      operationLink('backup drill', 'Prove some'),
    ],
  ];
}

async function processConcerns({ control }: ConsoleServices): Promise<Concern[]> {
  return (await listProcesses(control)).map(({ host, pid, heartbeatAge }) => [
    isSilent({ heartbeatAge }),
    'warning',
    host === null
      ? html`A process is gone, and its connections may still exist`
      : html`Process ${pid ?? ''} on ${host} has been silent for ${heartbeatAge ?? ''} s`,
    html`<a href="/capacity">Processes</a>`,
  ]);
}

async function timerConcerns({ control, offered }: ConsoleServices): Promise<Concern[]> {
  const runs = await lastRoutineRuns(control, routineCommands(offered));
  return runs.map(({ command, state, startedAt, error }): Concern => {
    const remedy = operationLink(command, `Open ${command}`);
    const at = time(startedAt);
    return state === 'failed'
      ? [true, 'error', html`${command} failed ${at}: <span class="cause">${shorten(error ?? '')}</span>`, remedy]
      : [isLongAgo(startedAt), 'warning', html`${command} ran last ${at}: its timer may have stopped`, remedy];
  });
}

function laggingConcern(fleet: Awaited<ReturnType<typeof countFleet>>, head: string): Concern {
  const lagging = fleet.filter(({ schemaVersion }) => schemaVersion !== null && schemaVersion < head);
  const tenants = lagging.reduce((sum, each) => sum + each.tenants, 0);
  const remedy = operationLink('migrate', 'Migrate all', { all: 'on', canary: '2' });
  return [tenants > 0, 'warning', html`${tenants} tenants are behind this build`, remedy];
}

const isLongAgo = (at: string): boolean => Date.now() - Date.parse(at) > stoppedAfterMs;
