import type { TenantRoute } from '../tenancy/define-route.ts';
import { assets, type Content, ownFile } from './assets.ts';
import { documentPage, documentText, pictures, shownDocuments } from './document-page.ts';
import { errorsPage } from './errors-page.ts';
import { openApiDocument, openApiText } from './openapi-document.ts';
import type { Site } from './page.ts';
import { type EndpointGroup, endpointGroups, pageOf } from './reference.ts';
import { groupPage, referenceChain, referencePage } from './reference-page.ts';
import { searchIndex } from './search-index.ts';
import { swaggerFile, swaggerPage } from './swagger.ts';

/** Every file of the documentation by its path. */
export function contentsByPath(routes: readonly TenantRoute[], site: Site): Map<string, Content> {
  let read: EndpointGroup[] | undefined;
  const groups = (): EndpointGroup[] => {
    read ??= endpointGroups(openApiDocument(routes));
    return read;
  };
  const tags = [...new Set(routes.map(({ tag }) => tag))];
  const htmlPage = (render: Content['render']): Content => ({ type: 'html', render });
  const picture = (path: string): Content => ({ type: 'svg', render: () => documentText(path.slice(1)) });
  return new Map<string, Content>([
    ...assets,
    ...shownDocuments(site).map((each): [string, Content] => [each.path, htmlPage(() => documentPage(each, site))]),
    ...(site.hasHandbook ? pictures.map((path): [string, Content] => [path, picture(path)]) : []),
    ['/docs/reference', htmlPage(() => referencePage(groups(), site))],
    ...tags.map((tag): [string, Content] => [pageOf(tag), htmlPage(() => groupPage(tag, groups(), site))]),
    ['/docs/errors', htmlPage(() => errorsPage(referenceChain(groups()), site))],
    ['/docs/openapi.json', { type: 'json', render: () => openApiText(routes) }],
    ['/docs/search.json', { type: 'json', render: () => searchIndex(groups(), site) }],
    ['/docs/search.js', { type: 'js', render: () => ownFile('search.js') }],
    ['/css/reference.css', { type: 'css', render: () => ownFile('reference.css') }],
    ['/css/explorer.css', { type: 'css', render: () => ownFile('explorer.css') }],
    ['/swagger', htmlPage(() => swaggerPage(site))],
    ['/swagger/start.js', { type: 'js', render: () => ownFile('explorer.js') }],
    ['/swagger/login.js', { type: 'js', render: () => ownFile('explorer-login.js') }],
    ['/swagger/swagger-ui.css', { type: 'css', render: () => swaggerFile('swagger-ui.css') }],
    ['/swagger/swagger-ui-bundle.js', { type: 'js', render: () => swaggerFile('swagger-ui-bundle.js') }],
  ]);
}
