import { type Html, html } from '../../lib/html/html.ts';
import { fieldLabel } from '../command/texts.ts';
import { type Cell, cellView, none, numberText, time, valueFormats } from './format.ts';
import { migrationRunLink, type Query, tenantLink, withQuery } from './links.ts';

/** The formats of `valueFormats`, with those of properties that are links. */
const formats: typeof valueFormats = {
  ...valueFormats,
  slug: tenantLink,
  tenant: tenantLink,
  run: migrationRunLink,
};

/**
 * A column of a list: a property of its rows, or a heading with its cell. The third part names
 * the order of the list after a click on the heading.
 */
type Column<Row> = (keyof Row & string) | Heading<Row>;
type Heading<Row> = readonly [
  name: string,
  cell: (keyof Row & string) | ((row: Row) => Cell),
  sort?: string,
];

/** A column in full. */
function columnOf<Row>(column: Column<Row>) {
  const [name, cell, sort]: Heading<Row> =
    typeof column === 'string' ? [fieldLabel(column), column] : column;
  if (typeof cell === 'function') return { name, cell, sort };
  const format = /(At|Until)$/.test(cell) ? time : (formats[cell] ?? (value => value));
  return {
    name,
    cell: (row: Row): Cell => (row[cell] == null ? none : format(row[cell] as never)),
    sort,
  };
}

/** From this number on, the columns of a list need the whole width of a usual screen. */
const manyColumns = 6;

/**
 * A list as a table, whose rows stand as blocks on a phone. The first cell of a row is its
 * heading. In a form, the buttons in the headings of columns sort it.
 * @param caption a name for its content
 * @param empty the text in place of a table without rows
 * @param sorted the column by which the rows are sorted, with `-` in front for descending order
 */
export function table<Row>(
  caption: Html | string,
  rows: readonly Row[],
  empty: Html | string,
  columns: readonly Column<Row>[],
  sorted?: string,
): Html {
  if (rows.length === 0) return html`<p class="note">${empty}</p>`;
  const full = columns.map(columnOf);
  const cell = (content: Cell, at: number): Html =>
    at === 0
      ? html`<th scope="row">${cellView(content)}</th>`
      : html`<td data-label="${full[at]?.name}">${cellView(content)}</td>`;
  return html`<div class="table${full.length >= manyColumns ? ' wide' : ''}"><table><caption>${caption}</caption>
<thead><tr>${full.map(column => heading(column, sorted))}</tr></thead>
<tbody>${rows.map(row => html`<tr>${full.map((column, at) => cell(column.cell(row), at))}</tr>\n`)}</tbody></table></div>`;
}

function heading(
  { name, sort }: { name: string; sort?: string | undefined },
  sorted: string | undefined,
): Html {
  if (sort === undefined || sorted === undefined) return html`<th scope="col">${name}</th>`;
  const [isUp, isDown] = [sorted === sort, sorted === `-${sort}`];
  const order = isUp ? html` aria-sort="ascending"` : isDown ? html` aria-sort="descending"` : '';
  return html`<th scope="col"${order}><button name="sort" value="${isUp ? `-${sort}` : sort}">${name}<span aria-hidden="true">${isUp ? ' ▲' : isDown ? ' ▼' : ''}</span></button></th>`;
}

/** Names and values. */
export function facts(...entries: (readonly [name: string, value: Cell])[]): Html {
  return html`<dl class="facts">${entries.map(([name, value]) => html`<div><dt>${name}</dt><dd>${cellView(value)}</dd></div>`)}</dl>`;
}

/**
 * Returns the part of a long list that a page shows.
 * @param page its number, from 1 on
 */
export function partOf(page: string | undefined, limit: number) {
  const number = /^\d{1,6}$/.test(page ?? '') ? Math.max(1, Number(page)) : 1;
  return { limit, offset: (number - 1) * limit };
}

/** Links to the pages of a long list. */
export function pager(
  path: string,
  query: Query,
  { limit, offset }: ReturnType<typeof partOf>,
  total: number,
): Html {
  const [page, last] = [offset / limit + 1, Math.max(1, Math.ceil(total / limit))];
  if (last === 1) return html``;
  const to = (number: number, text: string): Html =>
    html`<a href="${withQuery(path, { ...query, page: String(number) })}">${text}</a>`;
  return html`<nav class="actions" aria-label="Pages">${page > 1 ? to(page - 1, 'Previous') : ''}
<span>Page ${page} of ${last}, ${numberText(total)} in all</span> ${page < last ? to(page + 1, 'Next') : ''}</nav>`;
}
