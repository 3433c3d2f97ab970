import { type Html, html } from '../../../docs/html.ts';
import { listArchives } from '../../archives/list-archives.ts';
import { listDatabases } from '../../databases/list-databases.ts';
import { tenantRuns } from '../../schema/list-runs.ts';
import { listActions } from '../../tenants/list-actions.ts';
import { showTenant } from '../../tenants/read-tenants.ts';
import { readUsage } from '../../tenants/read-usage.ts';
import { listClients, listUsers } from '../../tenants/read-users.ts';
import { breadcrumbs } from '../console-page.ts';
import type { PageRequest } from '../console-services.ts';
import { type Moment, plot, timeline } from '../plot.ts';
import { actions, facts, loginLinks, operationLink, shorten, size, state, table, time, utc } from '../view.ts';

const days = 14;
const dayMs = 86_400_000;
const maxShown = 20;
const maxMoments = 40;

/** Everything about one tenant: what stands in the control database. */
export async function tenantPage({ services, params: { slug = '' } }: PageRequest) {
  const { control, offered } = services;
  const tenant = await showTenant(control, slug);
  const usage = await readUsage(
    control,
    {
      slug,
      from: new Date(Date.now() - days * dayMs).toISOString(),
      to: new Date(Date.now() + 3_600_000).toISOString(),
    },
    'day',
  );
  const databases = await listDatabases(control, slug);
  const users = await listUsers(control, slug);
  const clients = (await listClients(control, slug)).slice(-maxShown).reverse();
  const moments = await momentsOf(services, tenant, databases);
  const at = { slug };
  const main = html`${breadcrumbs(['/tenants', 'Tenants'])}
<h1>${tenant.name}</h1>
${facts([
  ['State', html`${state(tenant.status)}${tenant.isolated ? html` <span class="filter">isolated</span>` : ''}`],
  ['Slug', html`<code>${slug}</code>`],
  ['Guid', html`<code>${tenant.guid}</code>`],
  ['Server', html`<a href="/capacity">${tenant.server}</a>`],
  ['Database', html`<code>${tenant.database}</code>`],
  ['Schema version', html`<code>${tenant.schemaVersion ?? 'between versions'}</code>`],
  ['Size', size(usage.findLast(({ databaseBytes }) => databaseBytes !== null)?.databaseBytes)],
  ['Features', tenant.features.join(', ')],
  ['Made', time(tenant.createdAt)],
])}
${usagePlots(usage)}
<h2>What happened</h2>
${moments.length > 0 ? timeline(moments, lanes) : ''}
${table({
  caption: 'The newest events',
  columns: ['When', 'Kind', 'What', 'Outcome'],
  rows: moments
    .slice(0, maxShown)
    .map(moment => [time(moment.at), moment.lane, moment.text, state(moment.isBad ? 'failed' : 'done')]),
  empty: 'Nothing is recorded.',
})}
<p><a href="/log?slug=${encodeURIComponent(slug)}">The log of ${slug}</a></p>
<h2>People</h2>
${actions(operationLink('user add', 'Add a user', at), operationLink('session list', 'Open logins', at), operationLink('role list', 'Roles', at))}
${table({
  caption: users.length > maxShown ? `The first ${maxShown} of ${users.length} users` : 'Users',
  columns: ['E-mail address', 'Role', 'Scope', 'State', 'What to do'],
  rows: users
    .slice(0, maxShown)
    .map(({ email, role, scope, state: is }) => [
      email,
      role,
      scope,
      state(is),
      html`${loginLinks(slug, email)} ${is === 'disabled' ? operationLink('user enable', 'Enable', { slug, email }) : operationLink('user disable', 'Disable', { slug, email })}`,
    ]),
  empty: html`It has no user. ${operationLink('user add', 'Add one', at)}`,
})}
<h2>Databases</h2>
${actions(html`<a class="do" href="/recovery/${encodeURIComponent(slug)}">Restore earlier data</a>`, operationLink('move', 'Move to another server', at))}
${databaseTable(databases)}
<h2>Keys and programs</h2>
${actions(operationLink('key rotate', 'Rotate the key', at), operationLink('client add', 'Add a program', at))}
${table({
  caption: 'Keys that sign access tokens',
  columns: ['Key', 'State', 'Made', 'What to do'],
  rows: tenant.keys.map(({ kid, status, createdAt }) => [
    html`<code>${kid}</code>`,
    state(status),
    time(createdAt),
    operationLink('key disable', 'Disable', { slug, kid }),
  ]),
  empty: 'It has no key.',
})}
${table({
  caption: 'Programs with legacy tokens',
  columns: ['Program', 'Acts for', 'State', 'What to do'],
  rows: clients.map(({ id, name, user, state: is }) => [
    name,
    user,
    state(is),
    operationLink('client revoke', 'Revoke', { slug, id }),
  ]),
  empty: 'No program uses legacy tokens.',
})}
<h2>All commands for ${slug}</h2>
${commandsOf(offered, slug)}`;
  return { title: tenant.name, main };
}

/** The verbs that take a tenant, as their definitions say. */
function commandsOf(offered: PageRequest['services']['offered'], slug: string): Html {
  const taking = [...offered.values()].filter(({ operation: { fields } }) => fields.slug?.kind === 'slug');
  const groups = Map.groupBy(taking, ({ group }) => group);
  return html`<dl class="commands">${[...groups].map(
    ([group, each]) =>
      html`<div><dt>${group}</dt><dd>${each.map(({ operation: { name } }) => html`${operationLink(name, name, { slug })} `)}</dd></div>`,
  )}</dl>`;
}

export function databaseTable(databases: Awaited<ReturnType<typeof listDatabases>>): Html {
  return table({
    caption: 'Databases',
    columns: ['Database', 'Server', 'State', 'Filled from', 'Kept until', 'Why it is there'],
    rows: databases.map(({ database, server, state: is, origin, keepUntil, why }) => [
      html`<code>${database}</code>`,
      server,
      state(is),
      origin,
      keepUntil && html`<time datetime="${keepUntil}">${utc(keepUntil)}</time>`,
      why,
    ]),
    empty: 'It has no database yet.',
  });
}

function usagePlots(usage: Awaited<ReturnType<typeof readUsage>>): Html {
  const byDay = new Map(usage.map(each => [each.period, each]));
  const periods = Array.from({ length: days }, (_, at) =>
    new Date(Date.now() - (days - 1 - at) * dayMs).toISOString().slice(0, 10),
  );
  const count = (value: number): string => value.toLocaleString('en');
  const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;
  const rows = [
    ['Requests', 'requests', count],
    ['Refused requests', 'refused', count],
    ['Writes', 'writes', count],
    ['Database time', 'databaseMs', seconds],
  ] as const;
  const plots = rows.map(([name, field, text]) => {
    const values = periods.map(label => ({ label, value: byDay.get(label)?.[field] ?? 0 }));
    return plot(name, values, text);
  });
  return html`<div class="plots">${plots}</div>`;
}

const lanes = ['Operators', 'Migrations', 'Databases', 'Archives'] as const;

/** What happened to a tenant, the newest first. */
async function momentsOf(
  { control }: PageRequest['services'],
  { id, slug, guid }: Awaited<ReturnType<typeof showTenant>>,
  databases: Awaited<ReturnType<typeof listDatabases>>,
): Promise<Moment[]> {
  const log = await listActions(control, { slug, limit: maxMoments });
  const runs = await tenantRuns(control, id, maxMoments);
  const archives = await listArchives(control, { guid, limit: maxMoments });
  const moments: Moment[] = [
    ...log.map(({ startedAt, command, operator, reason, state }) => ({
      ...{ lane: 'Operators', at: startedAt, isBad: state === 'failed' },
      text: `${command} by ${operator}${reason ? `: ${reason}` : ''}`,
    })),
    ...runs.map(({ at, run, state, to, error }) => ({
      ...{ lane: 'Migrations', at, isBad: state === 'failed' },
      text: `run ${run}, ${state}${to ? ` to ${to.slice(0, 4)}` : ''}${error ? `: ${shorten(error)}` : ''}`,
    })),
    ...databases.map(({ createdAt, database, origin, error }) => ({
      ...{ lane: 'Databases', at: createdAt, isBad: error !== null },
      text: `${database}, filled from ${origin}`,
    })),
    ...archives.map(({ snapshotAt, fault, provedAt }) => ({
      ...{ lane: 'Archives', at: snapshotAt, isBad: fault !== null },
      text: fault ?? (provedAt ? 'archived, and proved by a restore' : 'archived'),
    })),
  ];
  return moments.sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, maxMoments);
}
