import { type Html, html } from '../../../lib/html/html.ts';
import { readEmail } from '../../../lib/http/request/email.ts';
import { findUsers } from '../../credentials/read-users.ts';
import { pageTenants, tenantSorts, tenantStates } from '../../registry/read-tenants.ts';
import { healthStates } from '../../registry/tenant-health.ts';
import type { PageRequest } from '../console-page.ts';
import { numberText } from '../format.ts';
import { decided, healthCell } from '../health-view.ts';
import { given, hiddenInputs, operationLink } from '../links.ts';
import { pager, partOf, table } from '../view.ts';
import { userLinks } from './tenant-page.ts';

const pageSize = 50;

/** Returns the sentence for a search without a result. */
function noneText(q: string): string {
  if (q === '') return 'There is no such tenant.';

  return 'There is no such tenant. A part of a slug, of a name or of a guid finds a tenant, and a whole e-mail address its users.';
}

/** The tenants that a search finds, and the users with an address. */
export async function tenantsPage({ control, query }: PageRequest) {
  const [q = '', server, version, asked = ''] = ['q', 'server', 'version', 'sort'].map(query);
  const [status, health] = ['status', 'health'].map(query);
  const sort = tenantSorts.some(name => name === asked.replace(/^-/, '')) ? asked : 'slug';
  const part = partOf(query('page'), pageSize);
  const filter = { search: q || undefined, status, health, server, version };

  const { tenants, total } = await pageTenants(control, { ...filter, sort, ...part });

  const { address, error } = readEmail(q);
  const users = address === undefined ? [] : (await findUsers(control, address)).slice(0, pageSize);
  const noUser = error
    ? `An e-mail address ${error.message}.`
    : `No user has the address ${address}. It must be whole: no part of an address is looked for.`;
  const isAddress = q.includes('@');

  const filters = given({
    with: q,
    'in state': status,
    'that are': health,
    'on server': server,
    'at version': version,
  });
  const empty = filters.length > 0 ? noneText(q) : 'There is no tenant: provision the first one.';

  const main = html`${filters.length > 0 ? html`<p>Only ${filters.map(([name, value]) => html`${name} <strong>${value}</strong> `)}<a href="/tenants">All tenants</a></p>` : ''}
${
  isAddress
    ? table(`Users with the address ${q}`, users, noUser, [
        'tenant',
        ['State of the tenant', 'status'],
        ['Health of the tenant', user => healthCell({ ...user, slug: user.tenant })],
        'role',
        'state',
        ['What to do', user => userLinks(user.tenant, user)],
      ])
    : ''
}
${
  isAddress && total === 0
    ? '' // the users, or that there are none, are the whole answer
    : html`<form action="/tenants" class="actions">${hiddenInputs({ q, server, version, sort: asked })}
${choice('status', 'State', tenantStates, status)}${choice('health', 'Health', healthStates, health)}
<button>Show these</button></form>
<form action="/tenants" class="sorted">${hiddenInputs({ q, status, health, server, version })}
${table(
  `${numberText(total)} ${total === 1 ? 'tenant' : 'tenants'}`,
  tenants,
  empty,
  [
    ['Slug', 'slug', 'slug'],
    ['Name', 'name', 'name'],
    ['State', decided, 'status'],
    ['Health', healthCell, 'health'],
    ['Schema version', 'schemaVersion', 'version'],
    ['Server', 'server', 'server'],
    ['Made', 'createdAt', 'created'],
  ],
  sort,
)}</form>`
}
${pager('/tenants', { q, status, health, server, version, sort }, part, total)}`;

  return { title: 'Tenants', links: [operationLink('provision', 'Provision a tenant')], main };
}

/** A list of words to choose one from, or none. */
function choice(
  name: string,
  label: string,
  words: readonly string[],
  chosen: string | undefined,
): Html {
  const options = words.map(
    word => html`<option${word === chosen ? html` selected` : ''}>${word}</option>`,
  );

  return html`<span class="pair"><label for="by-${name}">${label}</label> <select id="by-${name}" name="${name}"><option value="">any</option>${options}</select></span>`;
}
