import { normaliseEmail } from '../../../auth/email.ts';
import { html } from '../../../docs/html.ts';
import { countTenants, listTenants, tenantSorts } from '../../tenants/read-tenants.ts';
import { findUsers } from '../../tenants/read-users.ts';
import type { PageRequest } from '../console-services.ts';
import { numberText, state, version as versionView } from '../format.ts';
import { given, hiddenInputs, loginLinks, operationLink } from '../links.ts';
import { actions, pageNumber, pager, table } from '../view.ts';

const pageSize = 50;

/** The tenants that a search finds, and the users with an address. */
export async function tenantsPage({ services: { control }, query }: PageRequest) {
  const [q = '', status, server, version, asked = ''] = ['q', 'status', 'server', 'version', 'sort'].map(query);
  const sort = tenantSorts.some(name => name === asked.replace(/^-/, '')) ? asked : 'slug';
  const page = pageNumber(query('page'));
  const filter = { search: q || undefined, status, server, version };
  const total = await countTenants(control, filter);
  const tenants = await listTenants(control, { ...filter, sort, limit: pageSize, offset: (page - 1) * pageSize });
  const users = q.includes('@') ? (await findUsers(control, normaliseEmail(q))).slice(0, pageSize) : [];
  const filters = given({ with: q, 'in state': status, 'on server': server, 'at version': version });
  const first = html`There is no tenant. ${operationLink('provision', 'Provision the first one')}`;
  const empty = total > 0 || filters.length > 0 ? 'There is no such tenant.' : first;
  const main = html`${filters.length > 0 ? html`<p>Only ${filters.map(([name, value]) => html`<span class="tag">${name} <strong>${value}</strong></span> `)} <a href="/tenants">All tenants</a></p>` : ''}
${actions(operationLink('provision', 'Provision a tenant'))}
${
  q.includes('@')
    ? table(`Users with the address ${q}`, users, `No user has the address ${q}.`, [
        'tenant',
        ['State of the tenant', 'status'],
        'role',
        'state',
        ['What to do', ({ tenant, email }) => loginLinks(tenant, email)],
      ])
    : ''
}
<form action="/tenants" class="sorted">${hiddenInputs({ q, status, server, version })}
${table(
  `${numberText(total)} ${total === 1 ? 'tenant' : 'tenants'}`,
  tenants,
  empty,
  [
    ['Slug', 'slug', 'slug'],
    ['Name', 'name', 'name'],
    [
      'State',
      ({ status, isolated }) => html`${state(status)}${isolated ? html` <span class="tag">isolated</span>` : ''}`,
      'status',
    ],
    ['Schema version', ({ schemaVersion }) => (schemaVersion ? versionView(schemaVersion) : 'between'), 'version'],
    ['Server', 'server', 'server'],
    ['Made', 'createdAt', 'created'],
  ],
  sort,
)}</form>
${pager('/tenants', { q, status, server, version, sort }, page, pageSize, total)}`;
  return { title: 'Tenants', main };
}
