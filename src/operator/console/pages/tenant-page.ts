import { type Html, html } from '../../../docs/html.ts';
import { listArchives } from '../../archives/list-archives.ts';
import { type ListedDatabase, listDatabases } from '../../databases/list-databases.ts';
import { readFindings } from '../../doctor/read-findings.ts';
import { type TenantRun, tenantRuns } from '../../schema/list-runs.ts';
import { listActions } from '../../tenants/list-actions.ts';
import { showTenant, type TenantSummary } from '../../tenants/read-tenants.ts';
import { readUsage, type TenantUsageSummary } from '../../tenants/read-usage.ts';
import { listClients, listUsers, type UserSummary } from '../../tenants/read-users.ts';
import { linkCommands } from '../command-links.ts';
import type { ConsolePage } from '../console-page.ts';
import type { PageRequest } from '../console-services.ts';
import { code, type numberText, shorten, size, state, time } from '../format.ts';
import { loginLinks, operationLink, rolloutLink, withQuery } from '../links.ts';
import type { Offer } from '../offered.ts';
import { type Moment, plot, plottedDays, timeline } from '../plot.ts';
import { actions, facts, table } from '../view.ts';
import { findingsLink } from './findings.ts';

const hourMs = 3_600_000;
const maxShown = 20;
const maxMoments = 40;

/** Everything about one tenant: what stands in the control database. */
export async function tenantPage({ services, params: { slug = '' } }: PageRequest): Promise<ConsolePage> {
  const { control, offered } = services;
  const tenant = await showTenant(control, slug);
  const within = (ms: number): string => new Date(Date.now() + ms).toISOString();
  const usage = await readUsage(control, { slug, from: within(-plottedDays * 24 * hourMs), to: within(hourMs) }, 'day');
  const databases = await listDatabases(control, slug);
  const users = await listUsers(control, slug);
  const clients = (await listClients(control, slug)).slice(-maxShown).reverse();
  const runs = await tenantRuns(control, tenant.id, maxMoments);
  const moments = await momentsOf(services, tenant, databases, runs);
  const { errors = 0, warnings = 0 } = (await readFindings(control, { tenant: slug, limit: 0 })) ?? {};
  const at = { slug };
  const taking = [...offered.values()].filter(({ operation: { fields } }) => fields.slug?.kind === 'slug');
  const commands = Map.groupBy(taking, ({ group }) => group);
  const main = html`${runs[0]?.state === 'failed' ? failureNote(slug, runs[0], offered) : ''}
${facts(
  ['State', html`${state(tenant.status)}${tenant.isolated ? html` <span class="tag">isolated</span>` : ''}`],
  ['Slug', code(slug)],
  ['Guid', code(tenant.guid)],
  ['Server', html`<a href="/capacity">${tenant.server}</a>`],
  ['Database', code(tenant.database)],
  ['Schema version', code(tenant.schemaVersion ?? 'between versions')],
  ['Size', size(usage.findLast(({ databaseBytes }) => databaseBytes !== null)?.databaseBytes)],
  ['Features', tenant.features.join(', ')],
  ['Made', time(tenant.createdAt)],
  ['Findings', errors + warnings && findingsLink(errors + warnings, { tenant: slug })],
)}
${usagePlots(usage)}
<h2>What happened</h2>
${moments.length > 0 ? timeline(moments, lanes) : ''}
${table('The newest events', moments.slice(0, maxShown), 'Nothing is recorded.', [
  ['When', moment => time(moment.at)],
  ['Kind', 'lane'],
  ['What', 'text'],
  ['Outcome', ({ isBad }) => state(isBad ? 'failed' : 'done')],
])}
<p><a href="${withQuery('/log', at)}">The log of ${slug}</a></p>
<h2>People</h2>
${actions(operationLink('user add', 'Add a user', at), operationLink('session list', 'Open logins', at), operationLink('role list', 'Roles', at))}
${table(
  users.length > maxShown ? `The first ${maxShown} of ${users.length} users` : 'Users',
  users.slice(0, maxShown),
  html`It has no user. ${operationLink('user add', 'Add one', at)}`,
  ['email', 'role', 'scope', 'state', ['What to do', user => userLinks(slug, user)]],
)}
<h2>Databases</h2>
${actions(html`<a class="do" href="/recovery/${encodeURIComponent(slug)}">Restore earlier data</a>`, operationLink('move', 'Move to another server', at))}
${databaseTable(databases, offered)}
<h2>Keys and programs</h2>
${actions(operationLink('key rotate', 'Rotate the key', at), operationLink('client add', 'Add a program', at))}
${table('Keys that sign access tokens', tenant.keys, 'It has no key.', [
  'kid',
  ['State', 'status'],
  ['Made', 'createdAt'],
  ['What to do', ({ kid }) => operationLink('key disable', 'Disable', { slug, kid })],
])}
${table('Programs with legacy tokens', clients, 'No program uses legacy tokens.', [
  ['Program', 'name'],
  ['Acts for', 'user'],
  'state',
  ['What to do', ({ id }) => operationLink('client revoke', 'Revoke', { slug, id })],
])}
${table(`All commands for ${slug}`, [...commands], '', [
  ['Kind', ([group]) => group],
  ['Commands', ([, each]) => html`${each.map(({ operation: { name } }) => html`${operationLink(name, name, at)} `)}`],
])}`;
  return { title: tenant.name, above: [['/tenants', 'Tenants']], main };
}

function failureNote(slug: string, { run, error }: TenantRun, offered: Offer): Html {
  return html`<div class="note bad"><p><strong>Its last migration failed</strong>, in ${rolloutLink(run)}: ${linkCommands(error ?? '', offered)}</p>
${actions(operationLink('migrate', 'Migrate it again', { slug }))}</div>`;
}

function userLinks(slug: string, { email, state }: UserSummary): Html {
  const [verb, text] = state === 'disabled' ? ['user enable', 'Enable'] : ['user disable', 'Disable'];
  return html`${loginLinks(slug, email)} ${operationLink(verb, text, { slug, email })}`;
}

export function databaseTable(databases: readonly ListedDatabase[], offered: Offer): Html {
  return table('Databases', databases, 'It has no database yet.', [
    'database',
    'server',
    'state',
    ['Filled from', 'origin'],
    ['Kept until', 'keepUntil'],
    ['Why it is there', ({ why }) => linkCommands(why, offered)],
  ]);
}

function usagePlots(usage: readonly TenantUsageSummary[]): Html {
  const byDay = new Map(usage.map(each => [each.period, each]));
  const plotOf = (name: string, field: 'requests' | 'refused' | 'writes' | 'databaseMs', text?: typeof numberText) =>
    plot(name, day => byDay.get(day)?.[field] ?? 0, text);
  const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;
  return html`<div class="plots">${plotOf('Requests', 'requests')}${plotOf('Refused requests', 'refused')}${plotOf('Writes', 'writes')}${plotOf('Database time', 'databaseMs', seconds)}</div>`;
}

const lanes = ['Operators', 'Migrations', 'Databases', 'Archives'] as const;

/** What happened to a tenant, the newest first. */
async function momentsOf(
  { control }: PageRequest['services'],
  { slug, guid }: TenantSummary,
  databases: readonly ListedDatabase[],
  runs: readonly TenantRun[],
): Promise<Moment[]> {
  const log = await listActions(control, { slug, limit: maxMoments });
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
