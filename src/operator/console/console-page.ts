import type { DefaultContext, Middleware as KoaMiddleware, ParameterizedContext } from 'koa';
import { type Html, html } from '../../lib/html/html.ts';
import { htmlDocument, link } from '../../lib/html/html-document.ts';
import type { Context } from '../command/operation.ts';
import type { Entrance, Visitor } from './entrance.ts';
import { utc } from './format.ts';
import { actions } from './links.ts';
import type { Offer } from './offered.ts';
import type { Runs } from './runs.ts';

/** The services that the pages of a console use. */
export interface ConsoleServices {
  readonly entrance: Entrance;
  readonly offered: Offer;
  readonly runs: Runs;
  /** The control database. Pages open no other one. */
  readonly control: Context['installation'];
  readonly shell: Shell;
}

/** The frame around each page. */
interface Shell {
  /** The host on which the console runs. */
  readonly place: string;
  /** The commands that the console runs, in a word or two; empty for all. */
  readonly mode: string;
  /**
   * Returns whether the console runs the operation of a form.
   * @param path of the form
   */
  readonly runs: (path: string) => boolean;
}

/**
 * A request of a known visitor: for a page, or with a form that a page of the console has sent.
 */
export interface PageRequest extends ConsoleServices {
  readonly visitor: Visitor;
  /** The parameters of the path. */
  readonly params: Readonly<Record<string, string>>;
  /** The parameters of the query or of the form. */
  readonly given: URLSearchParams;
  /** True for a form without the token of this console: nothing is done with it. */
  readonly isStale: boolean;
  /** Returns a parameter by its name; undefined also for an empty one. */
  readonly query: (name: string) => string | undefined;
  /** Returns the token of a form by its path. */
  readonly tokenOf: (path: string) => string;
}

/**
 * The values that the steps of a request to the console leave for the later ones, in
 * `ctx.state`. `guard` sets all but `shell`; a page for an unknown visitor is sent before that.
 */
interface ConsoleState extends Pick<PageRequest, 'visitor' | 'given' | 'isStale' | 'tokenOf'> {
  readonly shell: Shell;
}

/** A request to the console, and its response. */
export type ConsoleContext = ParameterizedContext<ConsoleState, DefaultContext>;

/** A step of the way of a request to the console. */
export type ConsoleMiddleware = KoaMiddleware<ConsoleState, DefaultContext>;

/** A page. Around its main part, each shows the place and the version of the console. */
export interface ConsolePage {
  /** The title, which is the heading, too. */
  readonly title: string;
  /** The pages above it. */
  readonly above?: readonly (readonly [path: string, name: string])[];
  /** The name of the page below the pages above it, if that is not its heading. */
  readonly here?: string;
  /** Links to forms, below the heading. */
  readonly links?: readonly Html[];
  readonly main: Html;
  readonly status?: number;
  /** Further elements of the head. */
  readonly head?: Html | undefined;
}

/** A page, a text, or the path of another page. */
export type Answer = ConsolePage | string | { readonly to: string };

const navigation = [
  ['/', 'Now'],
  ['/tenants', 'Tenants'],
  ['/migrations', 'Migrations'],
  ['/recovery', 'Recovery'],
  ['/findings', 'Findings'],
  ['/capacity', 'Capacity'],
  ['/log', 'Log'],
  ['/operations', 'Commands'],
] as const;

/** Sends a page of the console. A page for an unknown visitor has no links. */
export function sendPage(
  ctx: ConsoleContext,
  { title, above = [], here, links = [], main, status = 200, head }: ConsolePage,
): void {
  ctx.status = status;
  ctx.type = 'text/html; charset=utf-8';
  ctx.body = htmlDocument({
    title: `${title} – Console`,
    styles: ['/css/base.css', '/css/docs.css', '/console.css'],
    scripts: ['/docs/docs.js', '/console.js'],
    head,
    header: html`<header><div class="bar">${ctx.state.visitor ? bar(ctx) : html`<strong>Sales back office console</strong>`}</div></header>`,
    main: html`${ctx.state.visitor && !isForm(ctx.path) ? ageNote(ownPath(ctx)) : ''}${above.length > 0 ? html`<nav class="hint" aria-label="Above this page">${above.map(([path, name]) => html`<a href="${path}">${name}</a> › `)}<span aria-current="page">${here ?? title}</span></nav>` : ''}
<h1>${title}</h1>
${withoutDeadButtons(
  html`${links.length > 0 ? actions(...links) : ''}
${main}`,
  ctx.state.shell,
)}`,
  });
}

/**
 * Shows links to forms of operations that this console does not run as links instead of
 * buttons.
 */
function withoutDeadButtons({ html: text }: Html, { runs }: Shell): Html {
  const shown = text.replace(
    /<a class="do" href="(\/operations\/[\w/-]+)/g,
    (link, path: string) => (runs(path) ? link : `<a href="${path}`),
  );

  return { html: shown };
}

/** Lets the browser load another page. */
export const reloadAfter = (seconds: number, to: string): Html =>
  html`<meta http-equiv="refresh" content="${seconds}; url=${to}">`;

function bar({ path, query, state: { shell, visitor } }: ConsoleContext): Html {
  const part = navigation.map(([href]) => href).find(href => path.startsWith(`${href}/`));
  const links = navigation.map(([href, name]) => html` ${link(href, name, path, part)}`);
  const q = path === '/tenants' ? String(query.q ?? '') : '';
  return html`<nav aria-label="Console"><strong><a href="/">Console</a></strong>${links}</nav>
<div class="beside"><form class="find" role="search" action="/tenants"><label class="hidden" for="find">Find</label>
<input type="search" id="find" name="q" value="${q}" autocomplete="off" spellcheck="false" placeholder="slug, name, guid, e-mail">
<button>Find</button></form>
<div class="hint">${shell.place} ${visitor.name} <strong>${shell.mode}</strong> ${isForm(path) ? '' : madeAt()}</div></div>`;
}

/**
 * The address of a page on this console: a path that begins with two slashes would lead to
 * another host.
 */
export function ownPath({ path, search }: Pick<ConsoleContext, 'path' | 'search'>): string {
  return `/${path.replace(/^[/\\]+/, '')}${search}`;
}

/** True for forms, and for the pages of runs: they show nothing that becomes old. */
const isForm = (path: string): boolean => /^\/(operations|runs)\//.test(path);

/** The time at which a page was made, and its facts were read. */
function madeAt(): Html {
  const now = new Date();

  return html`as of <time datetime="${now.toISOString()}" title="${utc(now)}">${utc(now).slice(11)}</time>`;
}

/**
 * The note that a page is old, because it shows the fleet as it was. A style shows the note
 * after a minute, without a script.
 * @param path of the page
 */
function ageNote(path: string): Html {
  return html`<p class="aged" role="status">This page is more than a minute old. <a href="${path}">Show it as it is now</a></p>`;
}
