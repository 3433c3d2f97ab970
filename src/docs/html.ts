/** HTML that is already safe; everything else is escaped when it is put into a page. */
export interface Html {
  readonly html: string;
}

type Part = Html | string | number | undefined | readonly Part[];

/** A template whose values are escaped, unless they are HTML themselves. */
export function html(strings: TemplateStringsArray, ...values: Part[]): Html {
  return { html: strings.map((text, index) => text + (index < values.length ? render(values[index]) : '')).join('') };
}

function render(value: Part): string {
  if (value === undefined) return '';
  if (typeof value === 'object' && 'html' in value) return value.html;
  if (Array.isArray(value)) return value.map(render).join('');
  return escapeHtml(String(value));
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, character => `&#${character.charCodeAt(0)};`);
}

/** The little Markdown that summaries and descriptions hold: `code`, paragraphs, and line breaks. */
export function markdown(text: string): Html {
  const paragraphs = text
    .split(/\n{2,}/)
    .map(paragraph => escapeHtml(paragraph).replace(/`([^`]+)`/g, '<code>$1</code>'));
  return { html: paragraphs.map(paragraph => `<p>${paragraph.replace(/ {2}\n/g, '<br>')}</p>`).join('\n') };
}

const pages = [
  ['/docs', 'Guide'],
  ['/docs/reference', 'Reference'],
  ['/docs/errors', 'Errors'],
  ['/docs/operators', 'Operators'],
  ['/swagger', 'Try it out'],
] as const;

interface Page {
  path: string;
  title: string;
  /** Sections of the page, by their id. */
  contents: readonly (readonly [string, string])[];
  body: Html;
}

/** A whole page: readable without scripts, on a phone, and in the dark. */
export function page({ path, title, contents, body }: Page): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} – Sales back office</title>
<link rel="stylesheet" href="/css/docs.css">
<link rel="icon" href="data:,">
</head>
<body>
<header><div><strong>Sales back office</strong>${pages.map(
    ([href, name]) => html` <a href="${href}"${href === path ? html` aria-current="page"` : ''}>${name}</a>`,
  )}</div></header>
<div class="page">
<nav class="contents" aria-label="On this page"><ul>${contents.map(([id, name]) => html`<li><a href="#${id}">${name}</a></li>`)}</ul></nav>
<main>${body}</main>
</div>
</body>
</html>
`.html;
}
