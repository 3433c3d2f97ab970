import { sampleValues } from './code-samples.ts';
import { type Html, html } from './html.ts';
import { renderFragment, renderInline } from './markdown.ts';
import { type PageChain, page, type Site } from './page.ts';
import type { EndpointGroup } from './reference.ts';
import { endpointSection, methodName } from './reference-endpoint.ts';

const overview = { path: '/docs/reference', title: 'Overview' };

/** The pages of the reference, in the order in which they are read. */
export function referenceChain(groups: readonly EndpointGroup[]): PageChain {
  const pages = groups.map(({ page, name }) => ({ path: page, title: name }));
  return { name: 'Reference', pages: [overview, ...pages, { path: '/docs/errors', title: 'Errors' }] };
}

/** The page of a group of endpoints. */
export function groupPage(tag: string, groups: readonly EndpointGroup[], site: Site): string {
  const group = groups.find(({ name }) => name === tag);
  if (!group) throw new Error(`no endpoint has the tag ${tag}`);
  const { name, description, endpoints } = group;
  const values = sampleValues(group, site.base);
  const body = html`<h1>${name}</h1>
${renderFragment(description)}
${endpoints.map(endpoint => endpointSection(endpoint, values))}`;
  const sections = endpoints.map(({ id, summary }) => [id, summary] as const);
  return page({ site, path: group.page, title: name, chain: referenceChain(groups), sections, body });
}

/** Every endpoint in a line, grouped as on the pages that describe them. */
export function referencePage(groups: readonly EndpointGroup[], site: Site): string {
  const body = html`<h1>Reference</h1>
<p>Every endpoint with its parameters, fields, errors and examples. The <a href="/swagger">explorer</a> calls them, and
the <a href="/docs/openapi.json">OpenAPI document</a> describes them for programs.</p>
<p>The examples for curl use <code>$TOKEN</code>, an access token, and <code>$TENANT</code>, the guid of the tenant.
Those in TypeScript use <code>office</code>, an instance of the client: see
<a href="/docs/guide/first-call">First call</a>.</p>
${groups.map(groupLines)}`;
  return page({ site, path: overview.path, title: 'Reference', chain: referenceChain(groups), sections: [], body });
}

function groupLines({ name, page, description, endpoints }: EndpointGroup): Html {
  const lines = endpoints.map(({ id, method, path, summary }) => {
    const address = html`${methodName(method)} <code class="path">${path}</code>`;
    return html`<li><a href="${page}#${id}">${address}</a> <span class="about">${summary}</span></li>`;
  });
  return html`<h2 id="${name}"><a href="${page}">${name}</a></h2>
<p>${renderInline(description.split('\n')[0] ?? '')}</p>
<ul class="endpoints">${lines}</ul>`;
}
