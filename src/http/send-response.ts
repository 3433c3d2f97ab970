import type { Context } from 'koa';
import { preferredCoding } from './content-coding.ts';
import { Representation } from './representation.ts';
import type { Route } from './route.ts';

const json = 'application/json; charset=utf-8';
/** What `Representation.tagOf` adds to a tag. */
const codingSuffix = /-(zstd|br|gzip)"$/;

/** Sends the result of a handler: status, `Location`, and an `ETag` if clients may revalidate the response. */
export function sendResponse(
  ctx: Context,
  route: Pick<Route, 'status' | 'location' | 'cache' | 'contentType'>,
  result: unknown,
): void | Promise<void> {
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
  if (route.cache === 'revalidate') {
    const representation = result instanceof Representation ? result : Representation.of(result);
    res.setHeader('Cache-Control', 'private, no-cache');
    ctx.vary('Authorization');
    return sendRepresentation(ctx, representation, json);
  }
  res.setHeader('Content-Type', json); // before the body, or Koa would guess a type
  ctx.body = result instanceof Representation ? result.body : JSON.stringify(result);
}

/**
 * Sends a representation with its `ETag`, compressed if the client accepts that and the representation is sent more than
 * once; or 304 if the client has it already, in any coding.
 */
export function sendRepresentation(
  ctx: Context,
  representation: Representation,
  contentType: string,
): void | Promise<void> {
  const { req, res } = ctx;
  const accepted = req.headers['accept-encoding'];
  const coding = accepted && representation.isCompressible ? preferredCoding(accepted) : undefined;
  if (accepted && representation.isCompressible) ctx.vary('Accept-Encoding');
  res.setHeader('ETag', coding ? representation.tagOf(coding) : representation.tag);
  if (isCurrent(representation.tag, req.headers['if-none-match'] ?? '')) {
    ctx.status = 304;
    return;
  }
  res.setHeader('Content-Type', contentType);
  if (!coding) {
    ctx.body = representation.body;
    return;
  }
  return representation.coded(coding).then(bytes => {
    res.setHeader('Content-Encoding', coding);
    ctx.body = bytes;
  });
}

/**
 * Whether `If-None-Match` names the current representation (RFC 9110 §13.1.2). `ctx.fresh` of Koa is no alternative: it
 * ignores `If-None-Match` in a request with `Cache-Control: no-cache`, which `fetch` adds to every conditional request.
 */
function isCurrent(tag: string, condition: string): boolean {
  if (condition === '') return false;
  return condition
    .split(',')
    .map(item => item.trim().replace(/^W\//, '').replace(codingSuffix, '"'))
    .some(item => item === tag || item === '*');
}
