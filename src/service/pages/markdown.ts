import { Marked, type RendererObject, type Tokens } from 'marked';
import { codeBlock, escapeHtml, type Html, htmlTable } from '../../lib/html/html.ts';
import type { Section } from './page.ts';

/** A rendered Markdown document with its headings of level 2, and of level 3 in them. */
export interface RenderedDocument {
  body: Html;
  sections: Section[];
}

const escapeRawHtml: RendererObject = { html: ({ text }) => escapeHtml(text) };
const fragments = new Marked({ renderer: escapeRawHtml });

/** Renders a description of a route: paragraphs, lists, code. HTML in it is escaped. */
export function renderFragment(text: string): Html {
  return { html: fragments.parse(text, { async: false }) };
}

/** Renders text of one paragraph, without the `<p>`. HTML in it is escaped. */
export function renderInline(text: string): Html {
  return { html: fragments.parseInline(text, { async: false }) };
}

/**
 * Renders a document: headings get ids, code blocks and tables are those of `html.ts`, raw HTML
 * is escaped.
 * @param linkTarget maps the target of each link, and each picture, to its address on the
 *   service
 */
export function renderDocument(
  text: string,
  linkTarget: (target: string) => string,
): RenderedDocument {
  const sections: [id: string, name: string, parts: Section[]][] = [];
  let heading = '';

  const renderer: RendererObject = {
    ...escapeRawHtml,
    heading({ tokens, depth, text }) {
      heading = text.replaceAll('`', '');
      const id = headingId(heading);

      if (depth === 2) sections.push([id, heading, []]);
      if (depth === 3) sections.at(-1)?.[2].push([id, heading]);
      return `<h${depth} id="${id}">${this.parser.parseInline(tokens)}</h${depth}>\n`;
    },

    code: ({ text }) => `${codeBlock(text, `Code: ${heading}`).html}\n`,
    table({ header, rows }) {
      const inline = ({ tokens }: Tokens.TableCell): Html => ({
        html: this.parser.parseInline(tokens),
      });

      const columns = header.map(({ text }) => text);
      const cells = rows.map(row => row.map(inline));
      return `${htmlTable(columns, cells).html}\n`;
    },

    image: ({ href, text }) =>
      `<img class="picture" src="${escapeHtml(linkTarget(href))}" alt="${escapeHtml(text)}" loading="lazy">`,
    link({ href, tokens }) {
      return `<a href="${escapeHtml(linkTarget(href))}">${this.parser.parseInline(tokens)}</a>`;
    },
  };

  const body = { html: new Marked({ renderer }).parse(text, { async: false }) };
  return { body, sections };
}

/** The text below a heading, for the search. */
export interface TextSection {
  /** The id of the heading; empty for the text before the first heading of level 2 or 3. */
  readonly id: string;
  readonly heading: string;
  readonly text: string;
}

/** Splits a document at its headings of levels 2 and 3, and removes the marks of Markdown. */
export function textSections(text: string): TextSection[] {
  const sections = [{ id: '', heading: '', text: '' }];
  for (const token of fragments.lexer(text)) {
    const heading = token.type === 'heading' ? token.text.replaceAll('`', '') : '';
    if (token.type === 'heading' && token.depth > 1) {
      sections.push({ id: headingId(heading), heading, text: '' });
    } else if (token.type !== 'heading') {
      sections.at(-1)!.text += `${plainText(token.raw)}\n`;
    }
  }
  return sections;
}

function plainText(markdown: string): string {
  return markdown
    .replace(/\]\([^)]*\)/g, ' ') // the target of a link
    .replace(/[`*|[\]#]|^ *-+/gm, ' ')
    .replace(/-{3,}/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
}

/**
 * The id that code hosts give to a heading, so that one anchor works there and on the service.
 */
export function headingId(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(' ', '-');
}
