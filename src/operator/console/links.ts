import { type Html, html } from '../../lib/html/html.ts';
import type { ListPage } from '../command/operation.ts';

export const tenantPath = (slug: string): string => `/tenants/${encodeURIComponent(slug)}`;
export const recoveryPath = (slug: string): string => `/recovery/${encodeURIComponent(slug)}`;

export const tenantLink = (slug: string): Html => html`<a href="${tenantPath(slug)}">${slug}</a>`;

/** A link to a migration run. */
export const migrationRunLink = (id: number): Html =>
  html`<a href="/migrations/${id}">Run ${id}</a>`;

/**
 * The path of the form of an operation.
 * @param name the words of the command
 */
export function operationPath(name: string): string {
  return `/operations/${name.replaceAll(' ', '/')}`;
}

/** A link to the form of an operation, with fields filled in. */
export function operationLink(name: string, text: string, fields: Query = {}): Html {
  return html`<a class="do" href="${withQuery(operationPath(name), fields)}">${text}</a>`;
}

/** Links, or other elements, beside each other. */
export function actions(...links: Html[]): Html {
  return html`<p class="actions">${links.map(link => html`${link} `)}</p>`;
}

/** Links from a part of a numbered list to the newest items, and to older ones. */
export function olderLinks(
  path: string,
  query: Query,
  { newer, older }: Pick<ListPage<object>, 'newer' | 'older'>,
): Html {
  if (newer === 0 && older === null) return html``;

  const newest = newer > 0 ? html`<a href="${withQuery(path, query)}">Newest</a>` : '';
  const next =
    older === null
      ? ''
      : html`<a href="${withQuery(path, { ...query, before: String(older) })}">Older</a>`;

  return html`<nav class="actions" aria-label="Parts of the list">${newest} ${next}</nav>`;
}

/** The parameters of a page, by name. */
export type Query = Readonly<Record<string, string | readonly string[] | undefined>>;

/** The parameters that are not empty. One with several texts stands several times. */
export function given(query: Query): [name: string, text: string][] {
  return Object.entries(query).flatMap(([name, value]) =>
    [value ?? []].flat().flatMap((text): [string, string][] => (text ? [[name, text]] : [])),
  );
}

/** Parameters that a form has beside its inputs. */
export function hiddenInputs(query: Query): Html {
  return html`${given(query).map(([name, text]) => html`<input type="hidden" name="${name}" value="${text}">`)}`;
}

/** An address with the parameters that are not empty. */
export function withQuery(path: string, query: Query): string {
  const text = new URLSearchParams(given(query)).toString();
  return text ? `${path}?${text}` : path;
}
