import type { Context } from 'koa';
import { Representation } from './representation.ts';
import type { Route } from './route.ts';

/** Sends the result of a handler: status, `Location`, and an `ETag` if clients may revalidate the response. */
export function sendResponse(
  ctx: Context,
  route: Pick<Route, 'status' | 'location' | 'cache' | 'contentType'>,
  result: unknown,
): void {
  ctx.status = result === undefined ? 204 : route.status;
  if (ctx.status === 204) {
    ctx.body = null;
    return;
  }
  const { res } = ctx;
  if (route.contentType !== undefined) {
    res.setHeader('Content-Type', route.contentType); // before the body, or Koa would guess a type
    ctx.body = result;
    return;
  }
  if (route.location) res.setHeader('Location', route.location(result as never));
  let body: string | Buffer;
  if (route.cache === 'revalidate') {
    const representation = result instanceof Representation ? result : Representation.of(result);
    res.setHeader('Cache-Control', 'private, no-cache');
    res.setHeader('Vary', 'Authorization');
    res.setHeader('ETag', representation.tag);
    if (isCurrent(representation.tag, ctx.req.headers['if-none-match'] ?? '')) {
      ctx.status = 304;
      return;
    }
    body = representation.body;
  } else {
    body = result instanceof Representation ? result.body : JSON.stringify(result);
  }
  res.setHeader('Content-Type', 'application/json; charset=utf-8'); // before the body, or Koa would guess a type
  ctx.body = body;
}

/**
 * Whether `If-None-Match` names the current representation (RFC 9110 §13.1.2). `ctx.fresh` of Koa is no alternative: it
 * ignores `If-None-Match` in a request with `Cache-Control: no-cache`, which `fetch` adds to every conditional request.
 */
function isCurrent(tag: string, condition: string): boolean {
  if (condition === '') return false;
  return condition
    .split(',')
    .map(item => item.trim().replace(/^W\//, ''))
    .some(item => item === tag || item === '*');
}
