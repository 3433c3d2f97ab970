import { type Html, html } from '../../lib/html/html.ts';
import { htmlDocument, link } from '../../lib/html/html-document.ts';

/** A section of a page: the id of its heading, the text of its link, and the sections in it. */
export type Section = readonly [id: string, name: string, parts?: readonly Section[]];

/** Facts of the service that all of its pages have in common. */
export interface Site {
  /** The address under which clients reach the service, for the examples. */
  readonly base: string;
  /** True if the handbook of operators is among the pages. */
  readonly hasHandbook: boolean;
}

interface PageLink {
  /** Path of the page on the service. */
  readonly path: string;
  readonly title: string;
}

/** Pages that are read one after the other. */
export interface PageChain {
  readonly name: string;
  readonly pages: readonly PageLink[];
}

interface Page extends PageLink {
  readonly site: Site;
  /** The pages that are read one after the other with this one, itself included. */
  chain?: PageChain | undefined;
  sections: readonly Section[];
  body: Html;
}

const handbookPath = '/docs/operate';

const navigation = [
  ['/docs', 'Guide'],
  ['/docs/reference', 'Reference'],
  ['/docs/errors', 'Errors'],
  [handbookPath, 'Operators'],
  ['/swagger', 'Try it out'],
] as const;

/**
 * A complete HTML page: header, list of sections, body. It needs no script: search.js adds the
 * search, docs.js copy buttons and tabs. The style sheets fit it to phones and dark mode.
 */
export function page({ site, path, title, chain, sections, body }: Page): string {
  return htmlDocument({
    title: `${title} – Sales back office`,
    styles: ['/css/base.css', '/css/docs.css', '/css/reference.css'],
    scripts: ['/docs/search.js', '/docs/docs.js'],
    header: header(path, site),
    contents: html`<div class="contents">
${chain ? chainLinks(chain, path) : ''}
${sections.length > 0 ? sectionLinks(sections) : ''}
</div>
`,
    main: html`${body}${chain ? adjacentPages(chain, path) : ''}`,
  });
}

function chainLinks({ name, pages }: PageChain, path: string): Html {
  const links = pages.map(each => html`<li>${link(each.path, each.title, path)}</li>`);
  return html`<nav aria-label="${name}"><h2>${name}</h2><ul>${links}</ul></nav>`;
}

function sectionLinks(sections: readonly Section[]): Html {
  return html`<nav aria-label="On this page"><h2>On this page</h2>${sectionList(sections)}</nav>`;
}

function sectionList(sections: readonly Section[]): Html {
  const links = sections.map(
    ([id, name, parts = []]) =>
      html`<li><a href="#${id}">${name}</a>${parts.length > 0 ? sectionList(parts) : ''}</li>`,
  );
  return html`<ul>${links}</ul>`;
}

/** Links to the pages before and after this one. */
function adjacentPages({ pages }: PageChain, path: string): Html {
  const at = pages.findIndex(each => each.path === path);
  const [previous, next] = [at > 0 ? pages[at - 1] : undefined, pages[at + 1]];
  const to = ({ path, title }: PageLink, rel: string, text: string): Html =>
    html`<a href="${path}" rel="${rel}"><span>${text}</span> ${title}</a>`;
  return html`<nav class="adjacent" aria-label="Previous and next page">
${previous ? to(previous, 'prev', 'Previous') : ''}${next ? to(next, 'next', 'Next') : ''}</nav>`;
}

/**
 * The header of every page: the links to all pages, with that of the page itself marked, and
 * the search, which search.js shows.
 */
export function header(path: string, { hasHandbook }: Site): Html {
  const shown = navigation.filter(([href]) => hasHandbook || href !== handbookPath);
  const links = shown.map(([href, name]) => html` ${link(href, name, path, partOf(path))}`);
  return html`<header><div class="bar"><nav aria-label="Documentation"><strong><a href="/docs">Sales back office</a></strong>${links}</nav>
<div role="search" id="search" hidden><label for="search-text">Search</label>
<input type="search" id="search-text" autocomplete="off" spellcheck="false" aria-controls="search-results">
<div id="search-results" hidden><p role="status"></p><ul></ul></div></div></div></header>`;
}

/** The page of the header that a page belongs to. */
function partOf(path: string): string {
  return (
    [...navigation]
      .map(([href]) => href)
      .findLast(href => path === href || path.startsWith(`${href}/`)) ?? ''
  );
}
