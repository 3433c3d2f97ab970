import { type Html, html } from './html.ts';

interface HtmlDocument {
  readonly title: string;
  /** Paths of style sheets and of modules. */
  readonly styles: readonly string[];
  readonly scripts: readonly string[];
  /** Further elements of the head. */
  readonly head?: Html | undefined;
  readonly header: Html;
  /** The column beside the main part, or above it on a phone. */
  readonly contents?: Html | undefined;
  readonly main: Html;
}

/** A complete HTML page of the service or of the console. */
export function htmlDocument({
  title,
  styles,
  scripts,
  head,
  header,
  contents,
  main,
}: HtmlDocument): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
${styles.map(path => html`<link rel="stylesheet" href="${path}">\n`)}<link rel="icon" href="/favicon.ico">
${scripts.map(path => html`<script src="${path}" type="module"></script>\n`)}${head}</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
${header}
<div class="page">
${contents}<main id="content" tabindex="-1">${main}</main>
</div>
</body>
</html>
`.html;
}

/**
 * A link to a page, marked on that page itself.
 * @param path of the page that has the link
 * @param part the page of the header that `path` belongs to
 */
export function link(href: string, name: string, path: string, part = path): Html {
  const current = href === path ? 'page' : href === part ? 'true' : undefined;
  return html`<a href="${href}"${current ? html` aria-current="${current}"` : ''}>${name}</a>`;
}
