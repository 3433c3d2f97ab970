import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { accountAssets } from '../../accounts/account-pages/account-assets.ts';
import { assets, type Content } from '../../lib/html/assets.ts';
import { html } from '../../lib/html/html.ts';
import { htmlDocument } from '../../lib/html/html-document.ts';
import { keysOf } from '../../lib/narrow.ts';
import { problems } from '../../lib/problems.ts';
import type { TenantRoute } from '../../tenancy/define-route.ts';
import {
  type Document,
  documentPage,
  documentText,
  pictures,
  shownDocuments,
} from './document-page.ts';
import { errorsPage, meanings } from './errors-page.ts';
import { textSections } from './markdown.ts';
import { openApiDocument, openApiText } from './openapi-document.ts';
import { header, type Site } from './page.ts';
import { type EndpointGroup, endpointGroups, referencePath } from './reference.ts';
import { groupPage, referenceChain, referencePage } from './reference-page.ts';

const ownFile = (name: string): Promise<string> => readFile(new URL(name, import.meta.url), 'utf8');

/** A file of the documentation, and its path. */
type PathContent = readonly [path: string, content: Content];

/** Every file of the documentation by its path. */
export function contentsByPath(routes: readonly TenantRoute[], site: Site): Map<string, Content> {
  return new Map<string, Content>([
    ...assets,
    ...accountAssets,
    ...documents(site),
    ...referenceContents(routes, site),
    ...explorerContents(site),
  ]);
}

function documents(site: Site): PathContent[] {
  const pages = shownDocuments(site).map(each => page(each.path, () => documentPage(each, site)));
  const shownPictures = site.hasHandbook ? pictures.map(picture) : [];

  return [...pages, ...shownPictures];
}

/** The reference and the search, made of the OpenAPI document when first asked for. */
function referenceContents(routes: readonly TenantRoute[], site: Site): PathContent[] {
  let read: EndpointGroup[] | undefined;
  const groups = (): EndpointGroup[] => {
    read ??= endpointGroups(openApiDocument(routes));
    return read;
  };

  const tags = [...new Set(routes.map(({ tag }) => tag))];

  return [
    page('/docs/reference', () => referencePage(groups(), site)),
    ...tags.map(tag => page(referencePath(tag), () => groupPage(tag, groups(), site))),
    page('/docs/errors', () => errorsPage(referenceChain(groups()), site)),
    ['/docs/openapi.json', { type: 'json', render: () => openApiText(routes) }],
    ['/docs/search.json', { type: 'json', render: () => searchIndex(groups(), site) }],
    ['/docs/search.js', { type: 'js', render: () => ownFile('search.js') }],
    ['/css/reference.css', { type: 'css', render: () => ownFile('reference.css') }],
  ];
}

/** The explorer (Swagger UI). */
function explorerContents(site: Site): PathContent[] {
  return [
    ['/css/explorer.css', { type: 'css', render: () => ownFile('explorer.css') }],
    page('/swagger', () => swaggerPage(site)),
    ['/swagger/start.js', { type: 'js', render: () => ownFile('explorer.js') }],
    ['/swagger/login.js', { type: 'js', render: () => ownFile('explorer-login.js') }],
    ['/swagger/swagger-ui.css', { type: 'css', render: () => swaggerFile('swagger-ui.css') }],
    [
      '/swagger/swagger-ui-bundle.js',
      { type: 'js', render: () => swaggerFile('swagger-ui-bundle.js') },
    ],
  ];
}

function page(path: string, render: Content['render']): PathContent {
  return [path, { type: 'html', render }];
}

function picture(path: string): PathContent {
  return [path, { type: 'svg', render: () => documentText(path.slice(1)) }];
}

/**
 * An entry that search.js searches: its title, its address, the name of its page, the words
 * that are shown below it, and all other words.
 */
type Entry = readonly [title: string, address: string, place: string, shown: string, words: string];

const maxShown = 120; // characters

/**
 * The search index of all pages, as JSON. The browser searches it, so that the search needs no
 * server.
 */
async function searchIndex(groups: readonly EndpointGroup[], site: Site): Promise<string> {
  const ofDocuments = await Promise.all(shownDocuments(site).map(documentEntries));
  return JSON.stringify([
    ...ofDocuments.flat(),
    ...groups.flatMap(endpointEntries),
    ...errorEntries(),
  ]);
}

function endpointEntries({ name, page, endpoints }: EndpointGroup): Entry[] {
  return endpoints.map(({ id, method, path, summary, description, body, response }) => {
    const fields = [body, response.body].flatMap(each =>
      Object.keys(each?.schema.properties ?? {}),
    );
    return [
      summary,
      `${page}#${id}`,
      `Reference: ${name}`,
      `${method} ${path}`,
      wordsOf(`${description} ${fields}`),
    ];
  });
}

function errorEntries(): Entry[] {
  return keysOf(meanings).map(code => {
    const { status, title } = problems[code];
    return [code, `/docs/errors#${code}`, 'Errors', `${status} ${title}`, wordsOf(meanings[code])];
  });
}

async function documentEntries({ file, path, title }: Document): Promise<Entry[]> {
  const sections = textSections(await documentText(file)).filter(
    ({ heading, text }) => heading || text,
  );
  return sections.map(({ id, heading, text }) => [
    heading || title,
    id === '' ? path : `${path}#${id}`,
    title,
    text.length > maxShown ? `${text.slice(0, maxShown).replace(/\s\S*$/, '')} …` : text,
    wordsOf(text.slice(maxShown)),
  ]);
}

/** The different words of a text, in lower case. */
function wordsOf(text: string): string {
  return [...new Set(text.toLowerCase().match(/[\p{L}\p{N}_]{2,}/gu))].join(' ');
}

/** Reads a file of Swagger UI from the package `swagger-ui-dist`. */
function swaggerFile(name: string): Promise<string> {
  const require = createRequire(import.meta.url);
  return readFile(require.resolve(`swagger-ui-dist/${name}`), 'utf8');
}

/** The page of the explorer (Swagger UI). */
function swaggerPage(site: Site): string {
  return htmlDocument({
    title: 'Try it out – Sales back office',
    styles: ['/swagger/swagger-ui.css', '/css/base.css', '/css/explorer.css'],
    scripts: ['/docs/search.js'],
    head: html`<script src="/swagger/swagger-ui-bundle.js" defer></script>
<script src="/swagger/start.js" type="module"></script>
`,
    header: header('/swagger', site),
    main: html`
<noscript>The explorer needs JavaScript. The <a href="/docs/reference">reference</a> works without it.</noscript>
<div id="explorer"></div>`,
  });
}
