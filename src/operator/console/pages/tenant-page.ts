import { type Html, html } from '../../../docs/html.ts';
import { readArchiveAge } from '../../backup/archive-ages.ts';
import { listDatabases } from '../../databases/list-databases.ts';
import { readFindings } from '../../doctor/read-findings.ts';
import { type TenantRun, tenantRuns } from '../../schema/list-runs.ts';
import { listActions } from '../../tenants/list-actions.ts';
import { showTenant, type TenantSummary } from '../../tenants/read-tenants.ts';
import { readUsage } from '../../tenants/read-usage.ts';
import { listClients, listUsers, type UserSummary } from '../../tenants/read-users.ts';
import { linkCommands } from '../command-line.ts';
import type { ConsolePage, PageRequest } from '../console-page.ts';
import { code, shorten, size, state, time } from '../format.ts';
import { actions, operationLink, recoveryPath, rolloutLink, withQuery } from '../links.ts';
import { plot, plottedDays, timeline } from '../plot.ts';
import { facts, table } from '../view.ts';
import { findingsLink } from './findings.ts';

const hourMs = 3_600_000;
const maxShown = 20;
const maxMoments = 40;

/** Everything about one tenant: what stands in the control database. */
export async function tenantPage(request: PageRequest): Promise<ConsolePage> {
  const { control, offered, params } = request;
  const { slug = '' } = params;
  const tenant = await showTenant(control, slug);
  const within = (ms: number): string => new Date(Date.now() + ms).toISOString();
  const usage = await readUsage(control, { slug, from: within(-plottedDays * 24 * hourMs), to: within(hourMs) }, 'day');
  const measured = usage.findLast(({ databaseBytes }) => databaseBytes !== null);
  const amounts = (field: 'requests' | 'refused' | 'writes' | 'databaseMs') => (day: string) =>
    usage.find(({ period }) => period === day)?.[field] ?? 0;
  const users = await listUsers(control, slug);
  const clients = (await listClients(control, slug)).slice(-maxShown).reverse();
  const runs = await tenantRuns(control, tenant.id, maxMoments);
  const moments = await readMoments(request, tenant, runs);
  const { errors = 0, warnings = 0 } = (await readFindings(control, { tenant: slug, limit: 0 })) ?? {};
  const at = { slug };
  const taking = [...offered.values()].filter(({ operation: { fields } }) => fields.slug?.kind === 'slug');
  const commands = Map.groupBy(taking, ({ group }) => group);
  const main = html`${runs[0]?.state === 'failed' ? failureNote(request, slug, runs[0]) : ''}
${facts(
  ['State', tenantState(tenant)],
  ['Slug', code(slug)],
  ['Guid', code(tenant.guid)],
  ['Server', html`<a href="/capacity">${tenant.server}</a>`],
  ['Database', code(tenant.database)],
  ['Schema version', code(tenant.schemaVersion ?? 'between versions')],
  ['Size', size(measured?.databaseBytes)],
  ['Measured', time(measured?.databaseMeasuredAt)],
  ['Features', tenant.features.join(', ')],
  ['Made', time(tenant.createdAt)],
  ['Findings', findingsLink(errors + warnings, errors > 0, { tenant: slug })],
)}
<div class="plots">${plot('Requests', amounts('requests'))}${plot('Refused requests', amounts('refused'))}
${plot('Writes', amounts('writes'))}${plot('Database time', amounts('databaseMs'), ms => `${(ms / 1_000).toFixed(1)} s`)}</div>
<h2>What happened</h2>
${timeline('Everything', moments)}
${table('The newest events', moments.slice(0, maxShown), 'Nothing is recorded.', [
  ['When', moment => time(moment.at)],
  'kind',
  ['What', 'text'],
  ['Outcome', ({ isBad }) => state(isBad ? 'failed' : 'done')],
])}
<p><a href="${withQuery('/log', at)}">The log of ${slug}</a></p>
<h2>People</h2>
${actions(operationLink('user add', 'Add a user', at), operationLink('session list', 'Open logins', at))}
${table(
  users.length > maxShown ? `The first ${maxShown} of ${users.length} users` : 'Users',
  users.slice(0, maxShown),
  html`It has no user. ${operationLink('user add', 'Add one', at)}`,
  ['email', 'role', 'scope', 'state', ['Last mail', 'mail'], ['What to do', user => userLinks(slug, user)]],
)}
<h2>Data</h2>
${actions(html`<a class="do" href="${recoveryPath(slug)}">Restore earlier data</a>`, operationLink('move', 'Move to another server', at))}
${await databaseTable(request, slug)}
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

export function tenantState({ status, isolated }: TenantSummary): Html {
  return html`${state(status)}${isolated ? ', isolated' : ''}`;
}

function failureNote({ offered }: PageRequest, slug: string, { run, error }: TenantRun): Html {
  return html`<div class="note bad"><p><strong>Its last migration failed</strong>, in ${rolloutLink(run)}: ${linkCommands(error ?? '', offered)}</p>
${actions(operationLink('migrate', 'Migrate it again', { slug }))}</div>`;
}

/** What helps a user who cannot log in, or should not. */
export function userLinks(slug: string, { email, state }: UserSummary): Html {
  const user = { slug, email };
  const [verb, text] = state === 'disabled' ? ['user enable', 'Enable'] : ['user disable', 'Disable'];
  return html`${operationLink('user password', 'Reset the password', user)} ${operationLink('session revoke', 'End logins', { slug, user: email })} ${operationLink(verb, text, user)}`;
}

/** The databases of a tenant, each with the command that comes next. */
export async function databaseTable({ control, offered }: PageRequest, slug: string): Promise<Html> {
  return table('Databases', await listDatabases(control, slug), 'It has no database yet.', [
    'database',
    'server',
    'state',
    ['Filled from', 'origin'],
    ['Kept until', 'keepUntil'],
    ['Why it is there', ({ why }) => linkCommands(why, offered)],
  ]);
}

/** What happened to a tenant, the newest first. */
async function readMoments({ control }: PageRequest, { slug, guid }: TenantSummary, runs: readonly TenantRun[]) {
  const log = (await listActions(control, { slug, limit: maxMoments })).map(({ startedAt: at, state, ...action }) => ({
    ...{ kind: 'Operators', at, isBad: state === 'failed' },
    text: `${action.command} by ${action.operator}${action.reason ? `: ${action.reason}` : ''}`,
  }));
  const migrations = runs.map(({ at, run, state, to, error }) => ({
    ...{ kind: 'Migrations', at, isBad: state === 'failed' },
    text: `run ${run}: ${error ? shorten(error) : `${state} to ${to ?? 'no version'}`}`,
  }));
  const archives = await readNewestArchive(control, guid);
  return [...log, ...migrations, ...archives].sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, maxMoments);
}

/** Returns the newest archive of a tenant as the last run saw it: the page *Recovery* lists the others. */
async function readNewestArchive(control: PageRequest['control'], guid: string) {
  const age = await readArchiveAge(control, guid);
  if (!age?.newestAt) return [];

  const { newestAt: at, fault } = age;
  return [{ kind: 'Archives', at, isBad: fault !== null, text: fault ?? 'archived' }];
}
