import { type Html, html } from '../../../docs/html.ts';
import { readArchiveAges } from '../../archives/archive-ages.ts';
import { type ArchiveSummary, listArchives } from '../../archives/list-archives.ts';
import { listDatabases } from '../../databases/list-databases.ts';
import { readTenant } from '../../tenants/read-tenants.ts';
import type { ConsolePage } from '../console-page.ts';
import type { PageRequest } from '../console-services.ts';
import { fault, state, utc } from '../format.ts';
import { operationLink, tenantPath } from '../links.ts';
import { rangeBar } from '../plot.ts';
import { actions, facts, pageNumber, pager, table } from '../view.ts';
import { databaseTable } from './tenant-page.ts';

const pageSize = 50;
const maxArchives = 60;

/** How well the fleet can be restored, the worst tenants first. */
export async function recoveryPage({ services: { control }, query }: PageRequest) {
  const page = pageNumber(query('page'));
  const { ages, ...counts } = await readArchiveAges(control, pageSize, (page - 1) * pageSize);
  const main = html`${facts(
    ['Tenants', counts.tenants],
    ['Without an archive', fault(counts.without, 'warn')],
    ['Newest archive faulty', fault(counts.faulty, 'bad')],
    ['Proofs by a restore', counts.isProved ? 'some' : state('none', 'warn')],
  )}
${actions(
  operationLink('backup run', 'Archive what has changed', { all: 'on' }),
  operationLink('backup verify', 'Check every byte'),
  operationLink('backup drill', 'Prove by restoring'),
  operationLink('backup list', 'List all archives'),
)}
${table('Archives, the worst first', ages, 'There is no tenant.', [
  ['Tenant', ({ slug }) => html`<a href="/recovery/${encodeURIComponent(slug)}">${slug}</a>`],
  ['State', age => state(age.fault ? 'faulty' : !age.snapshotAt ? 'missing' : age.provedAt ? 'proved' : 'unproved')],
  ['Newest archive', 'snapshotAt'],
  ['Covers until', 'coveredUntil'],
  ['Size', 'bytes'],
  ['Last proof', 'provedAt'],
  'fault',
])}
${pager('/recovery', {}, page, pageSize, counts.tenants)}`;
  return { title: 'Recovery', main };
}

/** What one tenant can be restored to, and what is restored beside it. */
export async function tenantRecoveryPage({ services, params, query }: PageRequest): Promise<ConsolePage> {
  const { control, offered } = services;
  const { slug = '' } = params;
  const { guid, name } = await readTenant(control, slug);
  const archives = await listArchives(control, { guid, limit: maxArchives });
  const databases = await listDatabases(control, slug);
  const at = { slug };
  const moment = readMoment(query('at'));
  const path = `/recovery/${encodeURIComponent(slug)}`;
  const main = html`<ol><li>${operationLink('restore', 'Restore beside the present data', { slug, archive: 'latest' })}, from an archive below, or at a moment</li>
<li>${operationLink('restore diff', 'Compare', at)} it with the present data</li>
<li>${operationLink('restore swap', 'Put it in place', at)}, or drop it</li>
<li>${operationLink('restore back', 'Go back', at)} if that was wrong</li></ol>
${actions(operationLink('restore moments', 'Moments of the write-ahead log', at), operationLink('backup run', 'Archive it now', at), operationLink('backup verify', 'Check its archives', at))}
<h2>Choose a moment</h2>
${rangeBar(archives, moment, at => `${path}?at=${at}#moment`)}
<form class="filters" action="${path}#moment"><label for="at">Moment, in UTC</label>
<input type="datetime-local" id="at" name="at" step="1" value="${moment?.toISOString().slice(0, 19)}" required><button>Show what has it</button></form>
${moment ? momentView(slug, moment, archives) : html`<p class="hint">Click on the line of time, or fill the moment in. Nothing is restored before you have seen a plan.</p>`}
<h2>Archives</h2>
${table(
  'The newest archives: between the snapshot and what it covers, nothing was written',
  archives,
  html`${slug} has no archive. ${operationLink('backup run', 'Archive it now', at)}`,
  [
    ['Snapshot', ({ snapshotAt }) => html`<time datetime="${snapshotAt}">${utc(snapshotAt)}</time>`],
    ['Covers until', 'unchangedAt'],
    ['Size', 'bytes'],
    ['Verified', 'verifiedAt'],
    ['Proved', 'provedAt'],
    ['Fault', archive => archive.fault && state(archive.fault, 'bad')],
    ['What to do', ({ id }) => operationLink('restore', 'Restore beside', { slug, archive: id })],
  ],
)}
<h2>Databases</h2>
${databaseTable(databases, offered)}`;
  return {
    title: `Restore ${slug}`,
    above: [
      ['/recovery', 'Recovery'],
      [tenantPath(slug), name],
    ],
    main,
  };
}

/** Reads a moment of the past, as an input of a browser has it, without a zone. */
function readMoment(text = ''): Date | undefined {
  const date = new Date(/^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?$/.test(text) ? `${text}Z` : '');
  return date.getTime() < Date.now() ? date : undefined;
}

/** What has the data of a moment. @param archives the newest first */
function momentView(slug: string, moment: Date, archives: readonly ArchiveSummary[]): Html {
  const before = archives.find(({ snapshotAt, fault }) => Date.parse(snapshotAt) <= moment.getTime() && fault === null);
  const covers = before && Date.parse(before.unchangedAt ?? before.snapshotAt) >= moment.getTime();
  const at = moment.toISOString().replace(/\.\d+/, '');
  const log = operationLink('restore', 'Restore this moment from the log', { slug, at });
  const archive = before && operationLink('restore', 'Restore this archive beside', { slug, archive: before.id });
  const text = !before
    ? html`No archive is as old. The write-ahead log may have the moment.`
    : covers
      ? html`The archive of ${utc(before.snapshotAt)} has exactly its data: nothing was written until ${utc(before.unchangedAt ?? before.snapshotAt)}.`
      : html`The last archive before it is of ${utc(before.snapshotAt)}. What was written after that, only the write-ahead log has.`;
  return html`<div class="note" id="moment"><p><strong>${utc(moment)}.</strong> ${text}</p>
${actions(...(archive ? [archive] : []), ...(covers ? [] : [log]))}</div>`;
}
