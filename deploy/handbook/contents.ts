import { readFile } from 'node:fs/promises';
import { documents, documentText } from '../../src/service/pages/document-page.ts';
import { headingId, textSections } from '../../src/service/pages/markdown.ts';
import { withTable } from './with-table.ts';

export const contentsFile = new URL('../../docs/operate.md', import.meta.url);

/** Returns the first page of the handbook, with a table of all sections of the other pages. */
export async function contentsText(): Promise<string> {
  const pages = documents.filter(({ file }) => file.startsWith('docs/operate/'));
  const rows = await Promise.all(
    pages.map(async ({ file, title }) => {
      const path = file.replace(/^docs\//, '');
      const link = (text: string, id: string): string => `[${text}](${path}#${id})`;
      const sections = textSections(await documentText(file)).filter(({ heading }) => heading);
      return [
        link(title, headingId(title)),
        sections.map(({ id, heading }) => link(heading, id)).join(' · '),
      ];
    }),
  );
  return withTable(await readFile(contentsFile, 'utf8'), 'Contents', ['Page', 'Sections'], rows);
}
