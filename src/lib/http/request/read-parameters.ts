import { z } from 'zod';
import type { HttpContext } from '../../request-state.ts';
import type { FieldError } from '../../runtime/field-error.ts';
import type { Route } from '../route.ts';
import { schemaOf } from '../schema-of.ts';
import { isCommaList } from './fields.ts';
import { prefersCsv } from './list-parameters/list-export.ts';
import { isFilterParameter } from './list-parameters/list-filters.ts';
import {
  isListParameter,
  type ListQuery,
  listsOfTexts,
  readListQuery,
  usesListQuery,
} from './list-parameters/list-query.ts';
import { prefersCount, readQuery, unknownNames } from './read-fields.ts';

/**
 * True if a request has parameters that may not be ignored, whatever its route: a filter.
 */
export function hasFilters(querystring: string): boolean {
  return querystring !== '' && [...new URLSearchParams(querystring).keys()].some(isFilterParameter);
}

export interface QueryInput<Query = object> {
  readonly query: Query;
  readonly list?: ListQuery | undefined;
}

const noParameters = z.object({});

/**
 * Reads the query string of a request: the parameters of the route, and those of its list.
 * @param strict whether unknown parameters are refused; otherwise they are ignored
 * @throws {Problem} `validation_failed`, which names every invalid parameter
 */
export function readParameters(
  ctx: Pick<HttpContext, 'path' | 'querystring' | 'req'>,
  { query = noParameters, list }: Pick<Route, 'query' | 'list'>,
  strict: boolean,
): QueryInput {
  const search = joinLists(new URLSearchParams(ctx.querystring), { query, list });
  const names = [...search.keys()].filter(name => !(list && isListParameter(list, name)));
  const errors = strict ? unknownNames(names, query, 'is not a parameter of this request') : {};

  if (!list) {
    for (const name of names.filter(isFilterParameter)) errors[name] = [noFilter];
  }

  for (const name of malformedNames(ctx.querystring)) {
    errors[name] = [{ message: 'must be UTF-8, percent-encoded', code: 'invalid_text' }];
  }

  const isExport = list !== undefined && prefersCsv(ctx.req.headers.accept);
  // A number as `after` is one of the plain list, which has no cursor.
  const isCounted =
    !isExport && prefersCount(ctx.req.headers.prefer) && !/^\d+$/.test(search.get('after') ?? '');
  if (!list || !(isExport || isCounted || usesListQuery(list, search))) {
    return { query: readQuery(query, search, errors) };
  }

  const listQuery = readListQuery(list, ctx.path, search, { isExport, isCounted }, errors);
  return { query: readQuery(list.otherParameters, search, errors), list: listQuery };
}

/**
 * Writes each list with commas that a library sends as several parameters as one, in their
 * order: `sort=a&sort=b`, `sort[]=a&sort[]=b` and `sort[0]=a&sort[1]=b` mean `sort=a,b`.
 */
function joinLists(search: URLSearchParams, route: Pick<Route, 'query' | 'list'>): URLSearchParams {
  const names = [...search.keys()];
  const areOnce = new Set(names).size === names.length;
  if (areOnce && !names.some(name => name.endsWith(']'))) return search;

  const lists = commaLists(route);
  const joined = new URLSearchParams();
  for (const [name, value] of search) {
    const plain = name.replace(/\[\d*\]$/, '');
    const before = lists.has(plain) ? joined.get(plain) : null;

    if (before !== null) joined.set(plain, `${before},${value}`);
    else joined.append(lists.has(plain) ? plain : name, value);
  }
  return joined;
}

/** Returns the names of the parameters of a route that are lists with commas. */
function commaLists({ query = noParameters, list }: Pick<Route, 'query' | 'list'>): Set<string> {
  const own = Object.entries(query.shape)
    .filter(([, field]) => isCommaList(schemaOf(field)))
    .map(([name]) => name);

  return new Set(list ? [...own, ...listsOfTexts] : own);
}

/** Without the refusal, a response with all records would be taken for the filtered one. */
const noFilter: FieldError = { message: 'is not taken: this path has no filters', code: 'unknown' };

/**
 * Returns the names of the parameters whose bytes are not UTF-8: they would be read as U+FFFD,
 * and find nothing.
 */
function malformedNames(querystring: string): string[] {
  if (!querystring.includes('%')) return [];

  return querystring
    .split('&')
    .filter(parameter => !isUtf8(parameter))
    .map(parameter => [...new URLSearchParams(parameter).keys()][0] ?? '');
}

function isUtf8(parameter: string): boolean {
  return [...parameter.matchAll(/(?:%[0-9a-f]{2})+/gi)].every(([bytes]) => {
    try {
      return decodeURIComponent(bytes) !== '';
    } catch {
      return false;
    }
  });
}
