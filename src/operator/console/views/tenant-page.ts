import { type Html, html } from '../../../lib/html/html.ts';
import { readArchiveAge } from '../../backup/archive-ages.ts';
import { needsConfirmation } from '../../command/operation.ts';
import { programText } from '../../credentials/program-text.ts';
import {
  listProgramKeys,
  listPrograms,
  type ProgramSummary,
} from '../../credentials/read-programs.ts';
import { listClients, listUsers, type UserSummary } from '../../credentials/read-users.ts';
import { listDatabases, served } from '../../databases/verbs/list-databases.ts';
import { listPlaces, type Place } from '../../databases/verbs/list-places.ts';
import { type ActionSummary, listActions } from '../../registry/list-actions.ts';
import {
  readTenant,
  showTenant,
  type TenantSummary,
  type TenantWithHealth,
} from '../../registry/read-tenants.ts';
import { readUsage } from '../../registry/read-usage.ts';
import { type TenantRun, tenantRuns } from '../../schema/list-runs.ts';
import { linkCommands } from '../command-line.ts';
import type { ConsolePage, PageRequest } from '../console-page.ts';
import { hour, inlineCode, shorten, size, state, time } from '../format.ts';
import { checkNowButton, decided, destructiveVerbs, reasonView, verbs } from '../health-view.ts';
import { actions, operationLink, recoveryPath, tenantPath, withQuery } from '../links.ts';
import type { Offer } from '../offered.ts';
import { plot, plottedDays, timeline } from '../plot.ts';
import { facts, table } from '../view.ts';
import { commandTable } from './commands.ts';
import { withText } from './operator-log.ts';

const hourMs = 3_600_000;
const maxShown = 20;
const maxMoments = 40;

/** The facts of the control database about one tenant. */
export async function tenantPage(request: PageRequest): Promise<ConsolePage> {
  const { control, offered, params } = request;
  const { slug = '' } = params;
  const tenant = await showTenant(control, slug);

  const within = (ms: number): string => new Date(Date.now() + ms).toISOString();
  const usage = await readUsage(
    control,
    { slug, from: within(-plottedDays * 24 * hourMs), to: within(hourMs) },
    'day',
  );

  const measured = usage.findLast(({ databaseBytes }) => databaseBytes !== null);
  const amounts = (field: 'requests' | 'refused' | 'writes' | 'databaseMs') => (day: string) =>
    usage.find(({ period }) => period === day)?.[field] ?? 0;

  const users = await listUsers(control, slug);
  const programs = await listPrograms(control, slug);
  const keys = (await listProgramKeys(control, slug)).filter(key => key.state === 'valid');
  const clients = (await listClients(control, slug)).slice(-maxShown).reverse();
  const runs = await tenantRuns(control, tenant.id, maxMoments);
  const moments = await readMoments(request, tenant, runs);

  const at = { slug };
  const main = html`${stateView(request, tenant)}
${facts(
  ['Slug', inlineCode(slug)],
  ['Guid', inlineCode(tenant.guid)],
  ['Server', html`<a href="/capacity">${tenant.server}</a>`],
  ['Database', inlineCode(tenant.database)],
  ['Schema version', inlineCode(tenant.schemaVersion ?? 'between versions')],
  ['Size', size(measured?.databaseBytes)],
  ['Measured', hour(measured?.databaseMeasuredAt)],
  ['Features', tenant.features.join(', ')],
  ['Made', time(tenant.createdAt)],
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
${actions(operationLink('user add', 'Add a user', at), operationLink('session list', 'Sessions', at))}
${table(
  captionOf('Users', users),
  users.slice(0, maxShown),
  html`It has no user. ${operationLink('user add', 'Add one', at)}`,
  [
    'email',
    'role',
    'scope',
    'state',
    ['Last mail', 'mail'],
    ['What to do', user => userLinks(slug, user)],
  ],
)}
<h2>Programs</h2>
${actions(operationLink('program add', 'Add a program', at))}
${table(
  captionOf('Programs', programs),
  programs.slice(0, maxShown),
  'No program calls the API with a key.',
  [
    ['Program', programText],
    'role',
    'scope',
    'state',
    ['Last used', ({ lastUsedAt }) => hour(lastUsedAt)],
    ['What to do', program => programLinks(slug, program)],
  ],
)}
${table(captionOf('Valid keys', keys), keys.slice(0, maxShown), 'No program has a valid key.', [
  ['Key', ({ prefix }) => inlineCode(`${prefix}…`)],
  ['Program', ({ programId, program }) => programText({ id: programId, name: program })],
  ['Ends', 'expiresAt'],
  ['Last used', ({ lastUsedAt }) => hour(lastUsedAt)],
  ['Made by', ({ madeBy }) => madeBy ?? 'an operator'],
  ['What to do', ({ id }) => operationLink('program key revoke', 'Revoke', { slug, key: id })],
])}
<h2>Data</h2>
${actions(html`<a class="do" href="${recoveryPath(slug)}">Restore earlier data</a>`, operationLink('move', 'Move to another server', at))}
${await databaseTable(request, slug)}
<h2>Keys and clients</h2>
${actions(operationLink('key rotate', 'Rotate the key', at), operationLink('client add', 'Add a client', at))}
${table('Keys that sign access tokens', tenant.keys, 'It has no key.', [
  'kid',
  ['State', 'status'],
  ['Made', 'createdAt'],
  ['What to do', ({ kid }) => operationLink('key disable', 'Disable', { slug, kid })],
])}
${table('Clients with legacy tokens', clients, 'No client uses legacy tokens.', [
  ['Client', 'name'],
  ['Acts for', 'user'],
  'state',
  ['What to do', ({ id }) => operationLink('client revoke', 'Revoke', { slug, id })],
])}
${destructionView(tenant, offered)}`;

  return { title: tenant.name, above: [['/tenants', 'Tenants']], here: slug, main };
}

/** Returns the state of a tenant and its health, each with its commands. */
function stateView(request: PageRequest, tenant: TenantWithHealth): Html {
  const { offered } = request;
  const { slug, health, reasons, checkedAt } = tenant;
  const looked = checkedAt ? html`doctor looked ${time(checkedAt)}` : 'doctor has never looked';

  return html`<div class="marks">
<section class="note"><h2>State: ${decided(tenant)}</h2>
${actions(...verbs(tenant, offered), html`<a href="${tenantPath(slug)}/commands">All commands</a>`)}</section>
<section class="note${health === 'unwell' ? ' bad' : ''}" id="health"><h2>Health: ${state(health)} <span class="hint">${looked}</span></h2>
${reasons.length > 0 ? html`<ul class="plain">${reasons.map(each => reasonView(each, offered))}</ul>` : ''}
${actions(checkNowButton(request))}</section></div>`;
}

/** Returns the links that destroy something of a tenant, apart from all others. */
function destructionView(tenant: TenantSummary, offered: Offer): Html {
  const links = destructiveVerbs(tenant, offered);
  if (links.length === 0) return html``;

  return html`<section class="note bad"><h2>${state('destroys', 'bad')} what cannot be had back easily</h2>
<p class="hint">The plan comes first, and wants the name typed.</p>${actions(...links)}</section>`;
}

/** Every command that takes a tenant, filled in; those that hurt somebody stand apart. */
export async function tenantCommandsPage({
  control,
  offered,
  params,
}: PageRequest): Promise<ConsolePage> {
  const { slug = '' } = params;
  const { name } = await readTenant(control, slug);
  const taking = [...offered.values()].filter(
    ({ operation: { fields } }) => fields.slug?.kind === 'slug',
  );
  const [hurting, others] = [true, false].map(hurts =>
    taking.filter(each => needsConfirmation(each.operation) === hurts),
  );
  const main = html`${[...Map.groupBy(others ?? [], ({ group }) => group)].map(([group, each]) => commandTable(group, each, { slug }))}
${commandTable('What locks somebody out, or destroys something', hurting ?? [], { slug })}`;

  return {
    title: `Commands for ${name}`,
    above: [
      ['/tenants', 'Tenants'],
      [tenantPath(slug), slug],
    ],
    here: 'Commands',
    main,
  };
}

/** Names a list of which the page shows the first rows. */
function captionOf(noun: string, rows: readonly unknown[]): string {
  return rows.length > maxShown
    ? `The first ${maxShown} of ${rows.length} ${noun.toLowerCase()}`
    : noun;
}

/** Returns links to commands for a program that needs a key, or should have none. */
function programLinks(slug: string, { id, state }: ProgramSummary): Html {
  const program = { slug, program: String(id) };
  const [verb, text] =
    state === 'disabled' ? ['program enable', 'Enable'] : ['program disable', 'Disable'];
  return html`${operationLink('program key add', 'Make a key', program)} ${operationLink(verb, text, program)}`;
}

/** Returns links to commands for a user who cannot log in, or should not. */
export function userLinks(slug: string, { email, state, secondFactor }: UserSummary): Html {
  const user = { slug, email };
  const [verb, text] =
    state === 'disabled' ? ['user enable', 'Enable'] : ['user disable', 'Disable'];
  const factors =
    secondFactor === 'no'
      ? ''
      : operationLink('user factors reset', 'Reset the second factor', user);

  return html`${operationLink('user password', 'Reset the password', user)} ${factors} ${operationLink('session revoke', 'End sessions', { slug, user: email })} ${operationLink(verb, text, user)}`;
}

/** The databases of a tenant, each with the command that comes next. */
export async function databaseTable(
  { control, offered }: PageRequest,
  slug: string,
): Promise<Html> {
  return table('Databases', await listDatabases(control, slug), 'It has no database yet.', [
    'database',
    'server',
    [
      'State',
      ({ state: is, why }) => state(is, is === 'current' && why !== served ? 'warn' : undefined),
    ],
    // of an archive, its folders say nothing
    ['Filled from', ({ origin }) => origin?.replace(/\S+\//, '')],
    ['Kept until', 'keepUntil'],
    ['Why it is there', ({ why }) => linkCommands(why, offered)],
  ]);
}

/** Returns the events of a tenant, the newest first. */
async function readMoments(
  { control }: PageRequest,
  { id, slug, guid, createdAt }: TenantSummary,
  runs: readonly TenantRun[],
) {
  const actions = await listActions(control, { slug, limit: maxMoments });
  const log = actions.map(action => ({
    kind: 'Operators',
    at: action.startedAt,
    isBad: action.state === 'failed',
    text: actionText(action),
  }));
  const migrations = runs.map(({ at, run, state: outcome, from, to, error }) => ({
    kind: 'Migrations',
    at,
    isBad: outcome === 'failed',
    text: `run ${run}: ${error ? shorten(error) : `${outcome} from ${from ?? 'no version'} to ${to ?? 'no version'}`}`,
  }));
  const databases = (await listPlaces(control, id)).map(place => ({
    kind: 'Databases',
    at: place.at,
    isBad: false,
    text: placeText(place),
  }));
  const isBirthKnown =
    actions.length === maxMoments ||
    actions.some(({ command }) => ['provision', 'clone'].includes(command));
  const birth = isBirthKnown ? [] : [{ kind: 'Tenant', at: createdAt, isBad: false, text: 'made' }];
  const archives = await readNewestArchive(control, guid);

  return [...log, ...migrations, ...databases, ...birth, ...archives]
    .sort((one, other) => (one.at < other.at ? 1 : -1))
    .slice(0, maxMoments);
}

/** `move by jane@office, to=second: more room` */
function actionText({ command, operator, arguments: given, reason }: ActionSummary): string {
  const values = withText(given);
  const what = `${command} by ${operator}${values ? `, ${values}` : ''}`;

  return reason ? `${what}: ${reason}` : what;
}

/** `served from tenants_acme_1 on second, before from tenants_acme_0 on first` */
function placeText({ database, server, origin, before }: Place): string {
  const what = `served from ${database} on ${server}, filled from: ${origin}`;

  return before ? `${what}; before from ${before.database} on ${before.server}` : what;
}

/**
 * Returns the newest archive of a tenant as the last run saw it: the page *Recovery* lists the
 * others.
 */
async function readNewestArchive(control: PageRequest['control'], guid: string) {
  const age = await readArchiveAge(control, guid);
  if (!age?.newestAt) return [];

  const { newestAt: at, fault } = age;
  return [{ kind: 'Archives', at, isBad: fault !== null, text: fault ?? 'archived' }];
}
