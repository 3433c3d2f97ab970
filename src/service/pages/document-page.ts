import { readFile } from 'node:fs/promises';
import { posix } from 'node:path';
import { renderDocument } from './markdown.ts';
import { type PageChain, page, type Site } from './page.ts';

/**
 * The address of the service in the examples of the documents. A rendered page has the real
 * address in its place.
 */
const exampleAddress = 'https://api.example.com';

/** A Markdown file of the repository that the service shows as a page. */
export interface Document {
  /** Path of the file in the repository. */
  readonly file: string;
  /** Path of the page on the service. */
  readonly path: string;
  readonly title: string;
}

const pageOfFolder =
  (folder: string) =>
  (name: string, title: string): Document => ({
    file: `docs/${folder}/${name}.md`,
    path: `/docs/${folder}/${name}`,
    title,
  });
const guidePage = pageOfFolder('guide');
const operatePage = pageOfFolder('operate');

/** The pages of the guide, in the order in which they are read. */
const guidePages: readonly Document[] = [
  { file: 'docs/guide.md', path: '/docs', title: 'Overview' },
  guidePage('first-call', 'First call'),
  guidePage('lists', 'Lists'),
  guidePage('import', 'Import and export'),
  guidePage('events', 'Events'),
  guidePage('admin-page', 'An admin page'),
  guidePage('webhooks', 'Webhooks'),
  guidePage('safe-changes', 'Safe changes'),
  guidePage('errors', 'Errors'),
  guidePage('people', 'People'),
  guidePage('programs', 'Programs'),
  guidePage('single-sign-on', 'Single sign-on'),
  guidePage('accounts', 'Accounts'),
  guidePage('limits', 'Limits'),
  { file: 'SECURITY.md', path: '/docs/security', title: 'Security' },
  guidePage('upgrading', 'Upgrading'),
  guidePage('changes', 'Changes'),
];

const operatorPages: readonly Document[] = [
  { file: 'docs/operate.md', path: '/docs/operate', title: 'Operating the service' },
  operatePage('day-one', 'Day one'),
  operatePage('day-two', 'Day two'),
  operatePage('console', 'The console'),
  operatePage('people', 'People and access'),
  operatePage('secrets', 'Secrets and certificates'),
  operatePage('moving', 'Servers and moves'),
  operatePage('backup', 'Backups and retention'),
  operatePage('restore', 'Restore'),
  operatePage('without-us', 'Archives without this software'),
  operatePage('upgrades', 'Upgrades'),
  operatePage('incidents', 'Incidents'),
  operatePage('errors', 'Errors and next steps'),
  operatePage('capacity', 'Capacity'),
  operatePage('times', 'How long commands take'),
  operatePage('monitoring', 'Monitoring'),
  operatePage('reference', 'Reference'),
  { file: 'docs/deploy.md', path: '/docs/deploy', title: 'Run it in production' },
  {
    file: 'docs/what-it-does-not-do.md',
    path: '/docs/what-it-does-not-do',
    title: 'What it does not do',
  },
];

export const documents: readonly Document[] = [...guidePages, ...operatorPages];

/** The documents that a service shows. */
export function shownDocuments({ hasHandbook }: Site): readonly Document[] {
  return hasHandbook ? documents : guidePages;
}

/**
 * The pictures of the handbook, by their path on the service: the same as in the repository.
 */
export const pictures: readonly string[] = ['now', 'tenant', 'plan'].map(
  name => `/docs/pictures/console-${name}.svg`,
);

const chains: readonly PageChain[] = [
  { name: 'Guide', pages: guidePages },
  { name: 'Operators', pages: operatorPages },
];

/** The page of the service, by the file of the repository that a link names. */
const pageOf: Record<string, string> = {
  ...Object.fromEntries(documents.map(({ file, path }) => [file, path])),
  ...Object.fromEntries(pictures.map(path => [path.slice(1), path])),
  // These pages are generated. On a code host, the link leads to their source.
  'src/lib/problems.ts': '/docs/errors',
  'src/service/routes.ts': '/docs/reference',
  'src/service/pages/openapi-document.ts': '/docs/openapi.json',
  'src/service/pages/contents.ts': '/swagger',
};

/**
 * A page made from a Markdown file.
 * @throws {Error} when a link of the file leads to no page of the service
 */
export async function documentPage({ file, path, title }: Document, site: Site): Promise<string> {
  const text = await documentText(file);
  const { body, sections } = renderDocument(text.replaceAll(exampleAddress, site.base), target =>
    servicePath(file, target),
  );
  const chain = chains.find(({ pages }) => pages.some(each => each.path === path));
  return page({ site, path, title, chain, sections, body });
}

/** Reads a file of the repository. */
export function documentText(file: string): Promise<string> {
  return readFile(new URL(`../../../${file}`, import.meta.url), 'utf8');
}

/**
 * `operate/capacity.md#imports` → `/docs/operate/capacity#imports`; a link within the page
 * stays as it is.
 */
function servicePath(file: string, target: string): string {
  const [linked = '', anchor] = target.split('#');
  if (linked === '') return target;
  const path = pageOf[posix.join(posix.dirname(file), linked)];
  if (path === undefined) {
    throw new Error(`${file} links to ${target}, which is no page of the service`);
  }
  return anchor === undefined ? path : `${path}#${anchor}`;
}
