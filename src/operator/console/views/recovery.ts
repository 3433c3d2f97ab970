import { type Html, html } from '../../../lib/html/html.ts';
import { readArchiveAge, readArchiveAges } from '../../backup/archive-ages.ts';
import type { ArchiveSummary } from '../../backup/list-archives.ts';
import { readTenant } from '../../registry/read-tenants.ts';
import type { ConsolePage, PageRequest } from '../console-page.ts';
import { fault, size, state, utc } from '../format.ts';
import { actions, operationLink, recoveryPath, tenantPath } from '../links.ts';
import { listInTarget } from '../list-in-target.ts';
import { timeline } from '../plot.ts';
import { facts, pager, partOf, table } from '../view.ts';
import { databaseTable } from './tenant-page.ts';

const pageSize = 50;

/** The page on how well the fleet can be restored, the worst tenants first. */
export async function recoveryPage({ control, query }: PageRequest): Promise<ConsolePage> {
  const part = partOf(query('page'), pageSize);
  const { ages, ...counts } = await readArchiveAges(control, part);
  const links = [
    operationLink('backup run', 'Archive what has changed', { all: 'on' }),
    operationLink('backup verify', 'Check names and sizes'),
    operationLink('backup drill', 'Start a drill: restore and compare'),
    operationLink('backup list', 'List all archives'),
  ];
  const main = html`${facts(
    ['Tenants', counts.tenants],
    ['Without an archive', fault(counts.without, 'warn')],
    ['Newest archive faulty', fault(counts.faulty, 'bad')],
    ['Passed a drill', counts.isProved ? 'some' : state('none', 'warn')],
  )}
${table('Archives in the present target, the worst first', ages, 'There is no tenant.', [
  ['Tenant', ({ slug }) => html`<a href="${recoveryPath(slug)}">${slug}</a>`],
  [
    'State',
    age =>
      state(
        age.fault ? 'faulty' : !age.newestAt ? 'missing' : age.provedAt ? 'proved' : 'unproved',
      ),
  ],
  ['Newest archive', 'newestAt'],
  ['Covers until', 'coveredUntil'],
  ['Archives', 'archives'],
  ['Size', 'bytes'],
  ['Passed a drill', 'provedAt'],
  'fault',
])}
${pager('/recovery', {}, part, counts.tenants)}`;

  return { title: 'Recovery', links, main };
}

/**
 * The page of the moments to which one tenant can be restored, and of the data restored beside
 * it.
 */
export async function tenantRecoveryPage(request: PageRequest): Promise<ConsolePage> {
  const { control, params, query } = request;
  const { slug = '' } = params;
  const { guid } = await readTenant(control, slug);
  const age = await readArchiveAge(control, guid);
  const { archives, others, note } = await listInTarget(control, guid);
  const at = { slug };
  const moment = readMoment(query('at'));
  const path = recoveryPath(slug);
  const moments = archives.map(({ time, fault: found }, index) => ({
    at: time,
    until: index === 0 ? (age?.coveredUntil ?? null) : null,
    text: found ?? 'archived',
    isBad: found !== null,
  }));
  const chosen = moment ? [{ at: moment.toISOString(), text: 'chosen', isChosen: true }] : [];
  const main = html`<ol><li>${operationLink('restore', 'Restore beside the present data', { slug, archive: 'latest' })}, from an archive below</li>
<li>${operationLink('restore diff', 'Count the differences', at)} from the present data, table by table</li>
<li>${operationLink('restore swap', 'Put it in place', at)}, or ${operationLink('databases drop', 'drop it', at)}</li>
<li>${operationLink('restore back', 'Go back', at)} if that was wrong</li></ol>
${actions(operationLink('backup run', 'Archive it now', at), operationLink('backup verify', 'Check its archives', at), operationLink('backup list', 'List its archives', at))}
${note}
<h2>Choose a moment</h2>
${timeline('Archives', [...moments, ...chosen], at => `${path}?at=${at}#moment`)}
<form class="actions" action="${path}#moment"><span class="pair"><label for="at">Moment, in UTC</label>
<input type="datetime-local" id="at" name="at" step="1" value="${moment?.toISOString().slice(0, 19)}" required></span><button>Show what has it</button></form>
${moment ? momentView({ slug, moment, archives, coveredUntil: age?.coveredUntil ?? null }) : html`<p class="hint">Click on the line of time, or fill the moment in. Nothing is restored before you have seen a plan.</p>`}
${table(
  'The newest archives',
  archives,
  html`${slug} has no archive. ${operationLink('backup run', 'Archive it now', at)}`,
  [
    ['Made', ({ time }) => html`<time datetime="${time}">${utc(time)}</time>`],
    ['Size', archive => size(archive.size)],
    ['Passed a drill', 'provedAt'],
    ['Fault', ({ fault: found }) => found && state(found, 'bad')],
    [
      'What to do',
      archive => operationLink('restore', 'Restore beside', { slug, archive: archive.name }),
    ],
  ],
)}
${
  others.length === 0
    ? html``
    : table('Objects that do not count', others, '', [
        ['Name', 'name'],
        ['State', found => state(found.state, 'warn')],
        ['Size', found => size(found.size)],
      ])
}
${await databaseTable(request, slug)}`;

  return {
    title: `Restore ${slug}`,
    above: [
      ['/recovery', 'Recovery'],
      [tenantPath(slug), slug],
    ],
    here: 'Restore',
    main,
  };
}

/** Reads a moment of the past, as an input of a browser has it, without a zone. */
function readMoment(text = ''): Date | undefined {
  const date = new Date(/^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?$/.test(text) ? `${text}Z` : '');

  return date.getTime() < Date.now() ? date : undefined;
}

/** The archives in which the data of a moment is looked for. */
interface Sought {
  readonly slug: string;
  readonly moment: Date;
  /** The newest first. */
  readonly archives: readonly ArchiveSummary[];
  /** Until when nothing was written after the newest one. */
  readonly coveredUntil: string | null;
}

/** Says which archive has the data of a moment. */
function momentView({ slug, moment, archives, coveredUntil }: Sought): Html {
  const before = archives.find(
    ({ time, fault: found }) => Date.parse(time) <= moment.getTime() && found === null,
  );
  const isNewest = before !== undefined && before === archives[0];
  const covers = isNewest && coveredUntil !== null && Date.parse(coveredUntil) >= moment.getTime();
  const recovered =
    'A server that you have recovered to that moment from its archived write-ahead log may have it.';
  const text = !before
    ? `No archive is as old. ${recovered}`
    : covers
      ? `The archive of ${utc(before.time)} has exactly its data: nothing was written until ${utc(coveredUntil)}.`
      : `The last archive before it is of ${utc(before.time)}. It does not have what was written after that. ${recovered}`;

  return html`<div class="note" id="moment"><p><strong>${utc(moment)}.</strong> ${text}</p>
${before ? actions(operationLink('restore', 'Restore this archive beside', { slug, archive: before.name })) : html``}</div>`;
}
