import { html } from '../../../docs/html.ts';
import { countArchiveAges, listArchiveAges } from '../../archives/archive-ages.ts';
import { listArchives } from '../../archives/list-archives.ts';
import { listDatabases } from '../../databases/list-databases.ts';
import { readTenant } from '../../tenants/read-tenants.ts';
import { breadcrumbs } from '../console-page.ts';
import type { PageRequest } from '../console-services.ts';
import { rangeBar } from '../plot.ts';
import { actions, facts, operationLink, pageNumber, pager, size, state, table, time, utc } from '../view.ts';
import { databaseTable } from './tenant-page.ts';

const pageSize = 50;
const maxArchives = 60;

/** How well the fleet can be restored, the worst tenants first. */
export async function recoveryPage({ services: { control }, query }: PageRequest) {
  const page = pageNumber(query('page'));
  const counts = await countArchiveAges(control);
  const ages = await listArchiveAges(control, pageSize, (page - 1) * pageSize);
  const main = html`<h1>Recovery</h1>
${facts([
  ['Tenants', counts.tenants.toLocaleString('en')],
  ['Without an archive', counts.without > 0 ? state(String(counts.without), 'warn') : 0],
  ['Newest archive faulty', counts.faulty > 0 ? state(String(counts.faulty), 'bad') : 0],
  ['Proved by a restore', counts.proved.toLocaleString('en')],
])}
${actions(
  operationLink('backup run', 'Archive what has changed', { all: 'on' }),
  operationLink('backup verify', 'Check every byte'),
  operationLink('backup drill', 'Prove by restoring'),
  operationLink('backup list', 'List all archives'),
)}
${table({
  caption: 'Archives, the worst first',
  columns: [
    'Tenant',
    'State',
    'Newest archive',
    'Covers until',
    { name: 'Size', isNumber: true },
    'Last proof',
    'Fault',
  ],
  rows: ages.map(age => [
    html`<a href="/recovery/${encodeURIComponent(age.slug)}">${age.slug}</a>`,
    age.fault !== null
      ? state('faulty')
      : age.snapshotAt === null
        ? state('missing')
        : age.provedAt === null
          ? state('unproved')
          : state('proved'),
    time(age.snapshotAt),
    time(age.coveredUntil),
    size(age.bytes),
    time(age.provedAt),
    age.fault,
  ]),
  empty: 'There is no tenant.',
})}
${pager('/recovery', {}, page, pageSize, counts.tenants)}`;
  return { title: 'Recovery', main };
}

/** What one tenant can be restored to, and what is restored beside it. */
export async function tenantRecoveryPage({ services: { control }, params: { slug = '' } }: PageRequest) {
  const { guid, name } = await readTenant(control, slug);
  const archives = await listArchives(control, { guid, limit: maxArchives });
  const databases = await listDatabases(control, slug);
  const at = { slug };
  const ranges = archives.map(({ snapshotAt, unchangedAt, fault }) => ({
    from: snapshotAt,
    to: unchangedAt ?? snapshotAt,
    isBad: fault !== null,
  }));
  const main = html`${breadcrumbs(['/recovery', 'Recovery'], [`/tenants/${encodeURIComponent(slug)}`, name])}
<h1>Restore ${slug}</h1>
<ol class="steps"><li>${operationLink('restore', 'Restore beside the present data', { slug, archive: 'latest' })}, from an archive below, or at a moment</li>
<li>${operationLink('restore diff', 'Compare', at)} it with the present data</li>
<li>${operationLink('restore swap', 'Put it in place', at)}, or drop it</li>
<li>${operationLink('restore back', 'Go back', at)} if that was wrong</li></ol>
${actions(operationLink('restore moments', 'Moments of the write-ahead log', at), operationLink('backup run', 'Archive it now', at), operationLink('backup verify', 'Check its archives', at))}
<h2>Archives</h2>
${ranges.length > 0 ? rangeBar(ranges) : ''}
${table({
  caption: 'The newest archives: each restores the data of its snapshot, and of every moment until it covers',
  columns: ['Snapshot', 'Covers until', { name: 'Size', isNumber: true }, 'Verified', 'Proved', 'Fault', 'What to do'],
  rows: archives.map(archive => [
    html`<time datetime="${archive.snapshotAt}">${utc(archive.snapshotAt)}</time>`,
    time(archive.unchangedAt),
    size(archive.bytes),
    time(archive.verifiedAt),
    time(archive.provedAt),
    archive.fault && state(archive.fault, 'bad'),
    operationLink('restore', 'Restore beside', { slug, archive: archive.id }),
  ]),
  empty: html`${slug} has no archive. ${operationLink('backup run', 'Archive it now', at)}`,
})}
<h2>Databases</h2>
${databaseTable(databases)}`;
  return { title: `Restore ${slug}`, main };
}
