import { type Html, html } from '../../../docs/html.ts';
import { readArchiveAges } from '../../archives/archive-ages.ts';
import { type ArchiveSummary, listArchives } from '../../archives/list-archives.ts';
import { readTenant } from '../../tenants/read-tenants.ts';
import type { ConsolePage, PageRequest } from '../console-page.ts';
import { fault, state, utc } from '../format.ts';
import { actions, operationLink, recoveryPath, tenantPath } from '../links.ts';
import { timeline } from '../plot.ts';
import { facts, pager, partOf, table } from '../view.ts';
import { databaseTable } from './tenant-page.ts';

const pageSize = 50;
const maxArchives = 60;

/** How well the fleet can be restored, the worst tenants first. */
export async function recoveryPage({ control, query }: PageRequest) {
  const part = partOf(query('page'), pageSize);
  const { ages, ...counts } = await readArchiveAges(control, part);
  const links = [
    operationLink('backup run', 'Archive what has changed', { all: 'on' }),
    operationLink('backup verify', 'Check every byte'),
    operationLink('backup drill', 'Prove by restoring'),
    operationLink('backup list', 'List all archives'),
  ];
  const main = html`${facts(
    ['Tenants', counts.tenants],
    ['Without an archive', fault(counts.without, 'warn')],
    ['Newest archive faulty', fault(counts.faulty, 'bad')],
    ['Proofs by a restore', counts.isProved ? 'some' : state('none', 'warn')],
  )}
${table('Archives, the worst first', ages, 'There is no tenant.', [
  ['Tenant', ({ slug }) => html`<a href="${recoveryPath(slug)}">${slug}</a>`],
  ['State', age => state(age.fault ? 'faulty' : !age.snapshotAt ? 'missing' : age.provedAt ? 'proved' : 'unproved')],
  ['Newest archive', 'snapshotAt'],
  ['Covers until', 'coveredUntil'],
  ['Size', 'bytes'],
  ['Last proof', 'provedAt'],
  'fault',
])}
${pager('/recovery', {}, part, counts.tenants)}`;
  return { title: 'Recovery', links, main };
}

/** What one tenant can be restored to, and what is restored beside it. */
export async function tenantRecoveryPage(request: PageRequest): Promise<ConsolePage> {
  const { control, params, query } = request;
  const { slug = '' } = params;
  const { guid, name } = await readTenant(control, slug);
  const archives = await listArchives(control, { guid, limit: maxArchives });
  const at = { slug };
  const moment = readMoment(query('at'));
  const path = recoveryPath(slug);
  const moments = archives.map(({ snapshotAt, unchangedAt, fault }) => ({
    ...{ at: snapshotAt, until: unchangedAt, text: fault ?? 'archived', isBad: fault !== null },
  }));
  const chosen = moment ? [{ at: moment.toISOString(), text: 'chosen', isChosen: true }] : [];
  const main = html`<ol><li>${operationLink('restore', 'Restore beside the present data', { slug, archive: 'latest' })}, from an archive below, or at a moment</li>
<li>${operationLink('restore diff', 'Compare', at)} it with the present data</li>
<li>${operationLink('restore swap', 'Put it in place', at)}, or ${operationLink('databases drop', 'drop it', at)}</li>
<li>${operationLink('restore back', 'Go back', at)} if that was wrong</li></ol>
${actions(operationLink('restore moments', 'Moments of the write-ahead log', at), operationLink('backup run', 'Archive it now', at), operationLink('backup verify', 'Check its archives', at))}
<h2>Choose a moment</h2>
${timeline('Archives', [...moments, ...chosen], at => `${path}?at=${at}#moment`)}
<form class="actions" action="${path}#moment"><label for="at">Moment, in UTC</label>
<input type="datetime-local" id="at" name="at" step="1" value="${moment?.toISOString().slice(0, 19)}" required><button>Show what has it</button></form>
${moment ? momentView(slug, moment, archives) : html`<p class="hint">Click on the line of time, or fill the moment in. Nothing is restored before you have seen a plan.</p>`}
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
    ['Fault', ({ fault }) => fault && state(fault, 'bad')],
    ['What to do', ({ id }) => operationLink('restore', 'Restore beside', { slug, archive: id })],
  ],
)}
${await databaseTable(request, slug)}`;
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
  const until = before && utc(before.unchangedAt ?? before.snapshotAt);
  const covers = until !== undefined && until >= utc(moment);
  const text = !before
    ? 'No archive is as old. The write-ahead log may have the moment.'
    : covers
      ? `The archive of ${utc(before.snapshotAt)} has exactly its data: nothing was written until ${until}.`
      : `The last archive before it is of ${utc(before.snapshotAt)}. What was written after that, only the write-ahead log has.`;
  const at = `${moment.toISOString().slice(0, 19)}Z`;
  return html`<div class="note" id="moment"><p><strong>${utc(moment)}.</strong> ${text}</p>
${actions(
  before ? operationLink('restore', 'Restore this archive beside', { slug, archive: before.id }) : html``,
  covers ? html`` : operationLink('restore', 'Restore this moment from the log', { slug, at }),
)}</div>`;
}
