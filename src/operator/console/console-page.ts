import type { Context } from 'koa';
import { type Html, html } from '../../docs/html.ts';
import { htmlDocument, link } from '../../docs/html-document.ts';

/** A page. Around its main part, each shows where the console runs, and what it runs (`ctx.state.shell`). */
export interface ConsolePage {
  /** Its heading, too. */
  readonly title: string;
  /** The pages above it. */
  readonly above?: readonly (readonly [path: string, name: string])[];
  readonly main: Html;
  readonly status?: number;
  /** Further elements of the head. */
  readonly head?: Html | undefined;
}

const navigation = [
  ['/', 'Now'],
  ['/tenants', 'Tenants'],
  ['/rollouts', 'Rollouts'],
  ['/recovery', 'Recovery'],
  ['/findings', 'Findings'],
  ['/capacity', 'Capacity'],
  ['/log', 'Log'],
  ['/operations', 'Commands'],
] as const;

/** Sends a page of the console. A page for somebody unknown has no links. */
export function sendPage(ctx: Context, { title, above = [], main, status = 200, head }: ConsolePage): void {
  const isKnown = ctx.state.visitor !== undefined;
  ctx.status = status;
  ctx.type = 'text/html; charset=utf-8';
  ctx.body = htmlDocument({
    title: `${title} – Console`,
    styles: ['/css/base.css', '/css/docs.css', '/console.css'],
    scripts: ['/docs/docs.js', '/console.js'],
    head,
    header: isKnown
      ? header(ctx)
      : html`<header><div class="bar"><strong>Sales back office console</strong></div></header>`,
    main: html`${above.length > 0 ? breadcrumbs(above) : ''}
<h1>${title}</h1>
${main}`,
  });
}

/** Lets the browser load another page. */
export const refresh = (seconds: number, to: string): Html =>
  html`<meta http-equiv="refresh" content="${seconds}; url=${to}">`;

function header(ctx: Context): Html {
  const { shell, visitor } = ctx.state;
  const part = navigation.map(([path]) => path).find(path => ctx.path.startsWith(`${path}/`));
  const links = navigation.map(([path, name]) => html` ${link(path, name, ctx.path, part)}`);
  const q = ctx.path === '/tenants' ? String(ctx.query.q ?? '') : '';
  return html`<header><div class="bar">
<nav aria-label="Console"><strong><a href="/">Console</a></strong>${links}</nav>
<form class="find" role="search" action="/tenants"><label class="hidden" for="find">Find</label>
<input type="search" id="find" name="q" value="${q}" autocomplete="off" spellcheck="false" placeholder="slug, name, guid, e-mail">
<button>Find</button></form>
<p class="who"><span>${shell.place}</span> <span>${visitor.name}</span> ${shell.mode && html`<span class="tag">${shell.mode}</span>`}</p>
</div></header>`;
}

function breadcrumbs(above: NonNullable<ConsolePage['above']>): Html {
  const items = above.map(([path, name]) => html`<a href="${path}">${name}</a> › `);
  return html`<nav class="hint" aria-label="Above this page">${items}</nav>`;
}
