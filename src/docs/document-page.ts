import { readFile } from 'node:fs/promises';
import { renderDocument } from './markdown.ts';
import { page } from './page.ts';

/** The address of the service in the examples of `docs/*.md`. A rendered page has the real one in its place. */
const exampleAddress = 'https://api.example.com';

/** The pages of the service, by the link that leads to them from a file in `docs`. */
const pageOf: Record<string, string> = {
  'guide.md': '/docs',
  'operators.md': '/docs/operators',
  // These pages are generated. On a code host, the link leads to their source.
  '../src/errors.ts': '/docs/errors',
  '../src/routes.ts': '/docs/reference',
  '../src/docs/openapi-document.ts': '/docs/openapi.json',
  '../src/docs/swagger.ts': '/swagger',
};

interface DocumentPage {
  /** Name of the file in the folder `docs`. */
  file: string;
  path: string;
  title: string;
  /** Address under which clients reach the service. */
  base: string;
}

/**
 * A page made from a Markdown file in the folder `docs`.
 * @throws {Error} when a link of the file leads to no page of the service
 */
export async function documentPage({ file, path, title, base }: DocumentPage): Promise<string> {
  const text = await readFile(new URL(`../../docs/${file}`, import.meta.url), 'utf8');
  const { body, sections } = renderDocument(text.replaceAll(exampleAddress, base), target => servicePath(file, target));
  return page({ path, title, sections, body });
}

/** `operators.md#capacity` → `/docs/operators#capacity`; a link within the page stays as it is. */
function servicePath(file: string, target: string): string {
  const [linked = '', anchor] = target.split('#');
  if (linked === '') return target;
  const path = pageOf[linked];
  if (path === undefined) throw new Error(`docs/${file} links to ${target}, which is no page of the service`);
  return anchor === undefined ? path : `${path}#${anchor}`;
}
