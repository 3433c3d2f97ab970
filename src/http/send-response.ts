import type { Context } from 'koa';
import { Representation } from './representation.ts';
import type { Route } from './route.ts';

/** Writes a handler's answer: status, `Location`, and an `ETag` where a client may ask whether its copy is current. */
export function sendResponse(
  ctx: Context,
  route: Pick<Route, 'status' | 'location' | 'cache' | 'contentType'>,
  answer: unknown,
): void {
  ctx.status = answer === undefined ? 204 : route.status;
  if (ctx.status === 204) {
    ctx.body = null;
    return;
  }
  const { res } = ctx;
  if (route.contentType !== undefined) {
    res.setHeader('Content-Type', route.contentType); // before the body, or Koa chooses a type
    ctx.body = answer;
    return;
  }
  if (route.location) res.setHeader('Location', route.location(answer as never));
  let body: string | Buffer;
  if (route.cache === 'revalidate') {
    const representation = answer instanceof Representation ? answer : new Representation(answer);
    res.setHeader('Cache-Control', 'private, no-cache');
    res.setHeader('Vary', 'Authorization');
    res.setHeader('ETag', representation.tag);
    if (isCurrent(representation.tag, ctx.req.headers['if-none-match'] ?? '')) {
      ctx.status = 304;
      return;
    }
    body = representation.body;
  } else {
    body = JSON.stringify(answer);
  }
  res.setHeader('Content-Type', 'application/json; charset=utf-8'); // before the body, or Koa looks for a type itself
  ctx.body = body;
}

/**
 * Whether a client's copy is the current one (RFC 9110 §13.1.2). Koa's own check leaves the condition aside when the
 * request carries `Cache-Control: no-cache`, which `fetch` adds to every conditional request.
 */
function isCurrent(tag: string, condition: string): boolean {
  if (condition === '') return false;
  return condition
    .split(',')
    .map(item => item.trim().replace(/^W\//, ''))
    .some(item => item === tag || item === '*');
}
