import { normaliseEmail } from '../../../auth/email.ts';
import { html } from '../../../docs/html.ts';
import { countTenants, listTenants, tenantSorts } from '../../tenants/read-tenants.ts';
import { findUsers } from '../../tenants/read-users.ts';
import type { PageRequest } from '../console-services.ts';
import {
  actions,
  givenParameters,
  loginLinks,
  operationLink,
  pageNumber,
  pager,
  state,
  table,
  tenantLink,
  time,
} from '../view.ts';

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
  const filters = givenParameters({ q, status, server, version });
  const main = html`<h1>Tenants</h1>
${filters.length > 0 ? html`<p>Only ${filters.map(([name, value]) => html`<span class="filter">${names[name]} <strong>${value}</strong></span> `)} <a href="/tenants">All tenants</a></p>` : ''}
${actions(operationLink('provision', 'Provision a tenant'))}
${
  q.includes('@')
    ? table({
        caption: `Users with the address ${q}`,
        columns: ['Tenant', 'State of the tenant', 'Role', 'State', 'What to do'],
        rows: users.map(user => [
          tenantLink(user.tenant),
          state(user.status),
          user.role,
          state(user.state),
          loginLinks(user.tenant, user.email),
        ]),
        empty: html`No user has the address ${q}.`,
      })
    : ''
}
${table({
  caption: `${total.toLocaleString('en')} ${total === 1 ? 'tenant' : 'tenants'}`,
  columns: [
    { name: 'Slug', sort: 'slug' },
    { name: 'Name', sort: 'name' },
    { name: 'State', sort: 'status' },
    { name: 'Schema version', sort: 'version' },
    { name: 'Server', sort: 'server' },
    { name: 'Made', sort: 'created' },
  ],
  rows: tenants.map(tenant => [
    tenantLink(tenant.slug),
    tenant.name,
    html`${state(tenant.status)}${tenant.isolated ? html` <span class="filter">isolated</span>` : ''}`,
    html`<code>${tenant.schemaVersion?.slice(0, 4) ?? 'between'}</code>`,
    tenant.server,
    time(tenant.createdAt),
  ]),
  empty:
    total > 0
      ? html`There are fewer pages.`
      : filters.length > 0
        ? html`No tenant has these properties.`
        : html`There is no tenant. ${operationLink('provision', 'Provision the first one')}`,
  sorted: { by: sort, path: '/tenants', query: { q, status, server, version } },
})}
${pager('/tenants', { q, status, server, version, sort }, page, pageSize, total)}`;
  return { title: 'Tenants', main };
}

const names: Readonly<Record<string, string>> = {
  q: 'with',
  status: 'in state',
  server: 'on server',
  version: 'at version',
};
