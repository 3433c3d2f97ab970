import type { HttpContext } from '../../request-state.ts';
import type { Route } from '../route.ts';
import { type ContentCoding, preferredCoding } from './content-coding.ts';
import { nameOf } from './entity-tags.ts';
import { Representation } from './representation.ts';

const json = 'application/json; charset=utf-8';

/**
 * `Cache-Control` of what a token may read: a cache asks each time whether the response is
 * current. `private, no-cache` says so; some caches inside programs keep by `max-age` alone, and
 * would give the response to another token.
 */
const revalidated = 'private, no-cache, max-age=0, must-revalidate';

/**
 * Sends the result of a handler: its status, and an `ETag` if clients may revalidate the
 * response.
 */
export function sendResponse(
  ctx: HttpContext,
  route: Pick<Route, 'status' | 'cache' | 'hasTag' | 'volatile' | 'list'>,
  result: unknown,
): void | Promise<void> {
  ctx.status = result === undefined ? 204 : route.status;
  if (ctx.status === 204) {
    ctx.body = null;
    return;
  }

  const { res } = ctx;
  if (route.cache === 'revalidate') {
    const representation =
      result instanceof Representation ? result : Representation.of(result, route.volatile);
    res.setHeader('Cache-Control', revalidated);
    addVary(res, 'Authorization');
    if (route.list) addVary(res, 'Accept'); // a list may also be CSV
    return sendRepresentation(ctx, representation, json);
  }

  res.setHeader('Content-Type', json); // before the body, or Koa would guess a type
  if (route.hasTag) {
    const { body, tag } = Representation.of(result, route.volatile);
    res.setHeader('ETag', tag);
    ctx.body = body;
  } else {
    ctx.body = result instanceof Representation ? result.body : JSON.stringify(result);
  }
}

/**
 * Sends a representation with its `ETag`, compressed if the client accepts that and the
 * representation is sent more than once; or 304 if the client has it already, in any coding.
 */
export function sendRepresentation(
  ctx: HttpContext,
  representation: Representation,
  contentType: string,
): void | Promise<void> {
  const { req, res } = ctx;
  const accepted = req.headers['accept-encoding'];

  let coding: ContentCoding | undefined;
  if (accepted && representation.isCompressible) {
    coding = preferredCoding(accepted);
    addVary(res, 'Accept-Encoding');
  }

  const condition = req.headers['if-none-match'];
  const known = condition === undefined ? undefined : nameOf(condition, representation.tag);
  if (known !== undefined) {
    // The client updates the response that it has stored under the tag that it sent, which may
    // be that of another coding.
    res.setHeader('ETag', known === '*' ? tagOf(representation, coding) : known);
    ctx.status = 304;
    return;
  }

  res.setHeader('Content-Type', contentType);
  if (!coding) {
    res.setHeader('ETag', representation.tag);
    ctx.body = representation.body;
    return;
  }

  const send = ({ bytes, tag }: { bytes: Buffer; tag: string }): void => {
    res.setHeader('ETag', tag);
    res.setHeader('Content-Encoding', coding);
    ctx.body = bytes;
  };

  const coded = representation.coded(coding);
  return coded instanceof Promise ? coded.then(send) : send(coded);
}

function tagOf(representation: Representation, coding: ContentCoding | undefined): string {
  return coding ? representation.tagOf(coding) : representation.tag;
}

/**
 * Adds a field to `Vary` that it does not name yet. Koa's `ctx.vary` would parse the header
 * first.
 */
function addVary(res: HttpContext['res'], field: string): void {
  const fields = res.getHeader('Vary');
  res.setHeader('Vary', fields === undefined ? field : `${fields}, ${field}`);
}
