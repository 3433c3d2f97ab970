import { readFile } from 'node:fs/promises';
import type { TenantRoute } from '../tenancy/define-route.ts';
import { documentPage, shownDocuments } from './document-page.ts';
import { errorsPage } from './errors-page.ts';
import { openApiDocument, openApiText } from './openapi-document.ts';
import type { Site } from './page.ts';
import { type EndpointGroup, endpointGroups, pageOf } from './reference.ts';
import { groupPage, referenceChain, referencePage } from './reference-page.ts';
import { searchIndex } from './search-index.ts';
import { swaggerFile, swaggerPage } from './swagger.ts';

/** A file of the documentation, rendered when it is first requested. */
export interface Content {
  readonly type: 'html' | 'css' | 'js' | 'json' | 'svg';
  readonly render: () => string | Promise<string>;
}

const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<rect width="16" height="16" rx="3" fill="#0b5fa5"/>
<path d="M4 12V8m4 4V4m4 8V6" stroke="#fff" stroke-width="2" stroke-linecap="round"/></svg>
`;

/** The files that pages outside the documentation also use. */
export const sharedContents: readonly (readonly [path: string, content: Content])[] = [
  ['/css/base.css', { type: 'css', render: () => ownFile('base.css') }],
  ['/favicon.ico', { type: 'svg', render: () => icon }],
];

/** Every file of the documentation by its path. */
export function contentsByPath(routes: readonly TenantRoute[], site: Site): Map<string, Content> {
  let read: EndpointGroup[] | undefined;
  const groups = (): EndpointGroup[] => {
    read ??= endpointGroups(openApiDocument(routes));
    return read;
  };
  const tags = [...new Set(routes.map(({ tag }) => tag))];
  const htmlPage = (render: Content['render']): Content => ({ type: 'html', render });
  return new Map<string, Content>([
    ...sharedContents,
    ...shownDocuments(site).map((each): [string, Content] => [each.path, htmlPage(() => documentPage(each, site))]),
    ['/docs/reference', htmlPage(() => referencePage(groups(), site))],
    ...tags.map((tag): [string, Content] => [pageOf(tag), htmlPage(() => groupPage(tag, groups(), site))]),
    ['/docs/errors', htmlPage(() => errorsPage(referenceChain(groups()), site))],
    ['/docs/openapi.json', { type: 'json', render: () => openApiText(routes) }],
    ['/docs/search.json', { type: 'json', render: () => searchIndex(groups(), site) }],
    ['/docs/element.js', { type: 'js', render: () => ownFile('element.js') }],
    ['/docs/search.js', { type: 'js', render: () => ownFile('search.js') }],
    ['/docs/docs.js', { type: 'js', render: () => ownFile('docs.js') }],
    ['/css/docs.css', { type: 'css', render: () => ownFile('style.css') }],
    ['/css/reference.css', { type: 'css', render: () => ownFile('reference.css') }],
    ['/css/explorer.css', { type: 'css', render: () => ownFile('explorer.css') }],
    ['/swagger', htmlPage(() => swaggerPage(site))],
    ['/swagger/start.js', { type: 'js', render: () => ownFile('explorer.js') }],
    ['/swagger/login.js', { type: 'js', render: () => ownFile('explorer-login.js') }],
    ['/swagger/swagger-ui.css', { type: 'css', render: () => swaggerFile('swagger-ui.css') }],
    ['/swagger/swagger-ui-bundle.js', { type: 'js', render: () => swaggerFile('swagger-ui-bundle.js') }],
  ]);
}

/** Reads a file of this folder. */
function ownFile(name: string): Promise<string> {
  return readFile(new URL(name, import.meta.url), 'utf8');
}
