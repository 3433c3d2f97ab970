import type { Context } from 'koa';
import { Representation } from './representation.ts';
import type { Route } from './route.ts';

/** Writes a handler's answer: status, `Location`, and an `ETag` where a client may ask whether its copy is current. */
export function sendAnswer(ctx: Context, route: Pick<Route, 'status' | 'location' | 'cache'>, answer: unknown): void {
  ctx.status = answer === undefined ? 204 : route.status;
  if (ctx.status === 204) {
    ctx.body = null;
    return;
  }
  if (route.location) ctx.set('Location', route.location(answer as never));
  if (route.cache === 'revalidate') {
    const { body, tag } = answer instanceof Representation ? answer : new Representation(answer);
    ctx.set('Cache-Control', 'private, no-cache');
    ctx.set('Vary', 'Authorization');
    ctx.set('ETag', tag);
    if (isCurrent(tag, ctx.get('If-None-Match'))) {
      ctx.status = 304;
      return;
    }
    ctx.body = body;
  } else {
    ctx.body = JSON.stringify(answer);
  }
  ctx.type = 'application/json; charset=utf-8';
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
