import type { Context } from 'koa';
import { type ContentCoding, preferredCoding } from './content-coding.ts';
import { nameOf } from './entity-tags.ts';
import { Representation } from './representation.ts';
import type { Route } from './route.ts';

const json = 'application/json; charset=utf-8';

/** Sends the result of a handler: status, `Location`, and an `ETag` if clients may revalidate the response. */
export function sendResponse(
  ctx: Context,
  route: Pick<Route, 'status' | 'location' | 'cache' | 'contentType' | 'hasTag'>,
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
  if (route.hasTag) {
    const { body, tag } = Representation.of(result);
    res.setHeader('ETag', tag);
    ctx.body = body;
  } else {
    ctx.body = result instanceof Representation ? result.body : JSON.stringify(result);
  }
}

/**
 * Sends a representation with its `ETag`, compressed if the client accepts that and the representation is sent more
 * than once; or 304 if the client has it already, in any coding.
 */
export function sendRepresentation(
  ctx: Context,
  representation: Representation,
  contentType: string,
): void | Promise<void> {
  const { req, res } = ctx;
  const accepted = req.headers['accept-encoding'];
  let coding: ContentCoding | undefined;
  if (accepted && representation.isCompressible) {
    coding = preferredCoding(accepted);
    ctx.vary('Accept-Encoding');
  }
  const tag = coding ? representation.tagOf(coding) : representation.tag;
  const condition = req.headers['if-none-match'];
  const known = condition === undefined ? undefined : nameOf(condition, representation.tag);
  // The client updates the response that it has stored under the tag that it sent, which may be that of another coding.
  res.setHeader('ETag', known === undefined || known === '*' ? tag : known);
  if (known !== undefined) {
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
