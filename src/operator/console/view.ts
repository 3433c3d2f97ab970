import { type Html, html } from '../../docs/html.ts';
import { sizeText } from '../command/size-text.ts';
import { type Tone, toneOf } from '../command/state-tone.ts';

/** What stands for a value that there is not. */
export const none = html`<span class="none">–</span>`;

/** What stands in a table or beside a name. */
type Cell = Html | string | number | null | undefined;

const cellView = (cell: Cell) => (cell || cell === 0 ? cell : none);

/** The shapes of states: nobody needs to tell colours apart. */
const shapes: Readonly<Record<Tone, string>> = { good: '●', busy: '◐', warn: '▲', bad: '✕', off: '○' };

/** The word of a state with its shape. @param word of an unknown state: it has no shape */
export function state(word: string, tone = toneOf.get(word)): Html {
  return tone
    ? html`<span class="state ${tone}"><span aria-hidden="true">${shapes[tone]}</span> ${word}</span>`
    : html`${word}`;
}

const units = [
  [86_400_000, 'd'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1_000, 's'],
] as const;

/** A duration in its largest unit: `3 min`. */
export function durationText(ms: number): string {
  const [size, unit] = units.find(([size]) => ms >= size) ?? [1, 'ms'];
  return `${Math.floor(ms / size)} ${unit}`;
}

/** A time as its distance from now, with the time in UTC as title. */
export function time(at: string | Date | null | undefined): Html {
  if (!at) return none;
  const date = new Date(at);
  const ms = Date.now() - date.getTime();
  const text = Math.abs(ms) < 1_000 ? 'now' : ms < 0 ? `in ${durationText(-ms)}` : `${durationText(ms)} ago`;
  return html`<time datetime="${date.toISOString()}" title="${utc(date)}">${text}</time>`;
}

/** `2026-11-24 22:50:39 UTC` */
export function utc(at: string | Date): string {
  return `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** The beginning of a long text. */
export function shorten(text: string, max = 200): string {
  return text.length > max ? `${text.slice(0, max)}…` : text;
}

export function size(bytes: number | null | undefined): string | undefined {
  return typeof bytes === 'number' ? sizeText(bytes) : undefined;
}

/** A link to the page of a tenant. */
export function tenantLink(slug: string | null): Html {
  return slug === null ? none : html`<a href="/tenants/${encodeURIComponent(slug)}">${slug}</a>`;
}

/** The path of the form of an operation. @param name the words of the command */
export function operationPath(name: string): string {
  return `/operations/${name.replaceAll(' ', '/')}`;
}

/** A link to the form of an operation, with fields filled in. */
export function operationLink(name: string, text: string, fields: Readonly<Record<string, string>> = {}): Html {
  const query = new URLSearchParams(fields).toString();
  return html`<a class="do" href="${operationPath(name)}${query && `?${query}`}">${text}</a>`;
}

/** Links that help somebody who cannot log in, or should not. */
export function loginLinks(slug: string, email: string): Html {
  const password = operationLink('user password', 'Reset the password', { slug, email });
  return html`${password} ${operationLink('session revoke', 'End logins', { slug, user: email })}`;
}

export function actions(...links: Html[]): Html {
  return html`<p class="actions">${links.map(link => html`${link} `)}</p>`;
}

interface Column {
  readonly name: string;
  /** What the list is sorted by, if it can be. */
  readonly sort?: string | undefined;
  readonly isNumber?: boolean;
}

interface Table {
  /** What the table has, for a screen reader and above it. */
  readonly caption: string;
  readonly columns: readonly (Column | string)[];
  /** The first cell of a row is its heading. */
  readonly rows: readonly (readonly Cell[])[];
  /** What stands in place of a table without rows. */
  readonly empty: Html | string;
  readonly isCaptionHidden?: boolean;
  /** The order of the rows, with `-` in front for the other way round, and the other parameters of the page. */
  readonly sorted?: { readonly by: string; readonly path: string; readonly query: Query };
}

/** A table, whose rows stand as blocks on a phone. Without script, too, the buttons in its heading sort it. */
export function table({ caption, columns, rows, empty, isCaptionHidden = false, sorted }: Table): Html {
  if (rows.length === 0) return html`<p class="empty">${empty}</p>`;
  const all = columns.map((column): Column => (typeof column === 'string' ? { name: column } : column));
  const kind = (at: number) => (all[at]?.isNumber ? html` class="number"` : '');
  const cell = (content: Cell, at: number): Html =>
    at === 0
      ? html`<th scope="row">${cellView(content)}</th>`
      : html`<td data-label="${all[at]?.name}"${kind(at)}>${cellView(content)}</td>`;
  const grid = html`<table class="grid"><caption${isCaptionHidden ? html` class="hidden"` : ''}>${caption}</caption>
<thead><tr>${all.map((column, at) => heading(column, kind(at), sorted?.by))}</tr></thead>
<tbody>${rows.map(cells => html`<tr>${cells.map(cell)}</tr>\n`)}</tbody></table>`;
  if (!sorted) return grid;
  const hidden = givenParameters(sorted.query).map(
    ([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`,
  );
  return html`<form action="${sorted.path}" class="sorted">${hidden}${grid}</form>`;
}

function heading({ name, sort }: Column, kind: Html | '', sorted: string | undefined): Html {
  if (sort === undefined || sorted === undefined) return html`<th scope="col"${kind}>${name}</th>`;
  const [isUp, isDown] = [sorted === sort, sorted === `-${sort}`];
  const order = isUp ? html` aria-sort="ascending"` : isDown ? html` aria-sort="descending"` : '';
  return html`<th scope="col"${kind}${order}><button name="sort" value="${isUp ? `-${sort}` : sort}">${name}<span aria-hidden="true">${isUp ? ' ▲' : isDown ? ' ▼' : ''}</span></button></th>`;
}

/** Names and values. */
export function facts(entries: readonly (readonly [name: string, value: Cell])[]): Html {
  return html`<dl class="facts">${entries.map(([name, value]) => html`<div><dt>${name}</dt><dd>${cellView(value)}</dd></div>`)}</dl>`;
}

/** The parameters of a page, by name. */
type Query = Readonly<Record<string, string | undefined>>;

/** The parameters that are not empty. */
export function givenParameters(query: Query): (readonly [name: string, value: string])[] {
  return Object.entries(query).flatMap(([name, value]) => (value ? [[name, value] as const] : []));
}

/** Links to the pages of a long list. @param page from 1 on */
export function pager(path: string, query: Query, page: number, size: number, total: number): Html {
  const last = Math.max(1, Math.ceil(total / size));
  if (last === 1) return html``;
  const to = (number: number, text: string): Html => {
    const parameters = new URLSearchParams(Object.fromEntries(givenParameters({ ...query, page: String(number) })));
    return html`<a href="${path}?${parameters.toString()}">${text}</a>`;
  };
  return html`<nav class="pager" aria-label="Pages">${page > 1 ? to(page - 1, 'Previous') : ''}
<span>Page ${page} of ${last}, ${total.toLocaleString('en')} in all</span> ${page < last ? to(page + 1, 'Next') : ''}</nav>`;
}

/** Reads the number of a page from a query. */
export function pageNumber(text = ''): number {
  return /^\d{1,6}$/.test(text) ? Math.max(1, Number(text)) : 1;
}
