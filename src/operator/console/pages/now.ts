import { type Html, html } from '../../../docs/html.ts';
import { countArchiveAges } from '../../archives/archive-ages.ts';
import { readStoredReport } from '../../doctor/reports.ts';
import { countFleet, readFailing } from '../../schema/fleet-status.ts';
import { listRuns } from '../../schema/list-runs.ts';
import { tenantHead } from '../../schema/tenant-head.ts';
import { listProcesses } from '../../tenants/processes.ts';
import { lastRoutineRuns } from '../../tenants/routine-runs.ts';
import { facts, none, operationLink, state, table, tenantLink, time } from '../view.ts';
import { currentFindings } from './findings.ts';
import { routineCommands } from './operator-log.ts';
import type { PageRequest } from './page-request.ts';

const maxShown = 8;
const silentAfterSeconds = 30;
/** A timer that ran in the last month, and not for so long, is taken for one that has stopped. */
const stoppedAfterMs = 48 * 3_600_000;

/** Something that needs attention, with its remedy. */
interface Concern {
  readonly severity: 'error' | 'warning';
  readonly text: Html;
  readonly remedy: Html;
}

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
    ...laggingConcerns(fleet, head),
  ].sort((a, b) => Number(a.severity === 'warning') - Number(b.severity === 'warning'));
  const tenants = fleet.reduce((sum, each) => sum + each.tenants, 0);
  const main = html`<h1>Now</h1>
${tenants === 0 ? firstSteps : ''}
${table({
  caption: concerns.length === 0 ? 'Needs attention' : `Needs attention (${concerns.length})`,
  columns: ['What', 'How bad', 'What to do'],
  rows: concerns.map(({ severity, text, remedy }) => [text, state(severity), remedy]),
  empty: html`${state('good', 'good')} Nothing needs attention.`,
})}
${facts([
  ['This build', html`<code>${head}</code>`],
  ['Tenants', html`<a href="/tenants">${tenants.toLocaleString('en')}</a>`],
  [
    'Last migration run',
    lastRun
      ? html`<a href="/rollouts/${lastRun.id}">${lastRun.id}</a>, ${state(lastRun.state)}, ${time(lastRun.startedAt)}`
      : none,
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
  empty: html`There is no tenant.`,
})}`;
  return { title: 'Now', main };
}

const firstSteps = html`<div class="note"><p><strong>This installation has no tenant yet.</strong> A tenant is a company with a database of its own.
Name the first one, and the e-mail address of its administrator: the console makes the database, the roles, a signing key and a password.</p>
<p>${operationLink('provision', 'Provision the first tenant')}</p></div>`;

function failingConcerns(failing: Awaited<ReturnType<typeof readFailing>>): Concern[] {
  const shown = failing.slice(0, maxShown).map(
    ({ slug, run, error }): Concern => ({
      severity: 'error',
      text: html`The last migration of ${tenantLink(slug)} failed: <span class="cause">${shorten(error)}</span>`,
      remedy: html`<a href="/rollouts/${run}">Run ${run}</a> ${operationLink('migrate', 'Migrate it again', { slug })}`,
    }),
  );
  if (failing.length <= maxShown) return shown;
  const rest: Concern = {
    severity: 'error',
    text: html`The last migration of further tenants failed`,
    remedy: operationLink('migrate', 'Retry all that failed', { retryFailed: 'on' }),
  };
  return [...shown, rest];
}

async function findingConcerns({ control }: PageRequest['services']): Promise<Concern[]> {
  const stored = await readStoredReport(control.statements);
  const check = operationLink('doctor', 'Check now');
  if (!stored) return [{ severity: 'warning', text: html`doctor has never looked`, remedy: check }];
  const open = (await currentFindings(control, stored.report.findings)).filter(
    ({ fixed, accepted }) => !fixed && !accepted,
  );
  const shown = open.slice(0, maxShown).map(
    ({ severity, tenant, server, problem, id }): Concern => ({
      severity,
      text: html`${tenant ? tenantLink(tenant) : server}: ${problem}`,
      remedy: html`<a href="/findings#${id}">Finding ${id}</a>`,
    }),
  );
  const more = open.length - shown.length;
  const rest: Concern[] =
    more > 0
      ? [
          {
            severity: open[maxShown]?.severity ?? 'warning',
            text: html`${more} further findings`,
            remedy: html`<a href="/findings">All findings</a>`,
          },
        ]
      : [];
  const isOld = Date.now() - Date.parse(stored.madeAt) > stoppedAfterMs;
  const old: Concern[] = isOld
    ? [{ severity: 'warning', text: html`doctor looked last ${time(stored.madeAt)}`, remedy: check }]
    : [];
  return [...shown, ...rest, ...old];
}

async function archiveConcerns({ control }: PageRequest['services']): Promise<Concern[]> {
  const { tenants, without, faulty, proved } = await countArchiveAges(control);
  const concerns: [boolean, Concern['severity'], Html, Html][] = [
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
  return concerns.filter(([isSo]) => isSo).map(([, severity, text, remedy]) => ({ severity, text, remedy }));
}

async function processConcerns({ control }: PageRequest['services']): Promise<Concern[]> {
  const silent = (await listProcesses(control)).filter(
    ({ heartbeatAge }) => heartbeatAge === null || heartbeatAge > silentAfterSeconds,
  );
  return silent.map(({ host, pid, heartbeatAge }) => ({
    severity: 'warning',
    text:
      host === null
        ? html`A process is gone, and its connections may still exist`
        : html`Process ${pid ?? ''} on ${host} has been silent for ${heartbeatAge ?? ''} s`,
    remedy: html`<a href="/capacity">Processes</a>`,
  }));
}

async function timerConcerns({ control, offered }: PageRequest['services']): Promise<Concern[]> {
  const runs = await lastRoutineRuns(control, routineCommands(offered));
  return runs.flatMap(({ command, state, startedAt, error }): Concern[] => {
    const remedy = operationLink(command, `Open ${command}`);
    if (state === 'failed')
      return [
        {
          severity: 'error',
          text: html`${command} failed ${time(startedAt)}: <span class="cause">${shorten(error ?? '')}</span>`,
          remedy,
        },
      ];
    const isStopped = Date.now() - Date.parse(startedAt) > stoppedAfterMs;
    return isStopped
      ? [
          {
            severity: 'warning',
            text: html`${command} ran last ${time(startedAt)}: its timer may have stopped`,
            remedy,
          },
        ]
      : [];
  });
}

function laggingConcerns(fleet: Awaited<ReturnType<typeof countFleet>>, head: string): Concern[] {
  const lagging = fleet.filter(({ schemaVersion }) => schemaVersion !== null && schemaVersion < head);
  const tenants = lagging.reduce((sum, each) => sum + each.tenants, 0);
  if (tenants === 0) return [];
  return [
    {
      severity: 'warning',
      text: html`${tenants} tenants are behind this build`,
      remedy: operationLink('migrate', 'Migrate all', { all: 'on', canary: '2' }),
    },
  ];
}

const shorten = (text: string): string => (text.length > 200 ? `${text.slice(0, 200)}…` : text);
