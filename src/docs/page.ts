import { type Html, html } from './html.ts';

/** A section of a page: the id of its heading, and the text of its link. */
export type Section = readonly [id: string, name: string];

interface Page {
  /** Path of the page on the service. */
  path: string;
  title: string;
  /** The pages that belong together with this one, itself included. */
  pages?: readonly { path: string; title: string }[];
  sections: readonly Section[];
  body: Html;
}

const navigation = [
  ['/docs', 'Guide'],
  ['/docs/reference', 'Reference'],
  ['/docs/errors', 'Errors'],
  ['/docs/operators', 'Operators'],
  ['/swagger', 'Try it out'],
] as const;

/**
 * A complete HTML page: header, list of sections, body. It needs no script; style.css fits it to phones and dark mode.
 */
export function page({ path, title, pages = [], sections, body }: Page): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} – Sales back office</title>
<link rel="stylesheet" href="/css/docs.css">
<link rel="icon" href="/favicon.ico">
</head>
<body>
${header(path)}
<div class="page">
<div class="contents">
${pages.length > 0 ? html`<nav aria-label="Guide"><ul>${pages.map(each => html`<li>${link(each.path, each.title, path)}</li>`)}</ul></nav>` : ''}
<nav aria-label="On this page"><ul>
${sections.map(([id, name]) => html`<li><a href="#${id}">${name}</a></li>`)}
</ul></nav>
</div>
<main>${body}</main>
</div>
</body>
</html>
`.html;
}

/** The header of every page: the links to all pages, with that of the page itself marked. */
export function header(path: string): Html {
  const links = navigation.map(([href, name]) => html` ${link(href, name, path)}`);
  return html`<header><nav aria-label="Documentation"><strong>Sales back office</strong>${links}</nav></header>`;
}

function link(href: string, name: string, path: string): Html {
  return html`<a href="${href}"${href === path ? html` aria-current="page"` : ''}>${name}</a>`;
}
