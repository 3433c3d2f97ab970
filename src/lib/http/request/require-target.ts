import type { IncomingMessage } from 'node:http';
import { problem } from '../../problems.ts';
import type { HttpContext } from '../../request-state.ts';
import { closing } from './read-body.ts';

/**
 * Headers that are sent once: Node keeps the first one of several, and drops the others
 * silently.
 */
const singleHeaders = ['host', 'authorization', 'content-type'];

/** A host and a port (RFC 3986 §3.2.2 and §3.2.3), both of which may be empty. */
const hostPattern = /^(?:\[[\da-f:.]+\]|(?:[\w.~!$&'()*+,;=-]|%[\da-f]{2})*)(?::\d*)?$/i;

/**
 * A fragment, which no target has (RFC 9112 §3.2), or a backslash in an absolute URL: with
 * either, Koa reads a backslash in the path as a slash.
 */
const ambiguous = /#|^[^/?][^?]*\\/;

/**
 * Rejects a request whose target is ambiguous. A request line may hold an absolute URL (RFC
 * 9112 §3.2.2); Koa throws when it reads the path of a malformed one. `Host` is required in
 * HTTP/1.1, must be sent once, and must be a host (§3.2): a client that ignores this may not
 * follow the framing of messages either. A proxy in front may read the next request of the
 * connection differently, so the connection ends.
 * @throws {Problem} `invalid_request`
 */
export function requireTarget(ctx: HttpContext): void {
  if (!hasPath(ctx)) {
    throw problem('invalid_request', { detail: 'The request target is not well-formed.' });
  }

  const { host } = ctx.req.headers;
  if (host === undefined ? ctx.req.httpVersion === '1.1' : !hostPattern.test(host)) {
    throw problem('invalid_request', {
      detail: 'A request must have a header Host, with a host.',
      headers: closing,
    });
  }
  if (singleHeaders.some(name => isRepeated(ctx.req, name))) {
    throw problem('invalid_request', {
      detail: `Each of these headers may occur once: ${singleHeaders.join(', ')}.`,
      headers: closing,
    });
  }
  if ((ctx.req.headers['transfer-encoding'] ?? 'chunked').toLowerCase() !== 'chunked') {
    throw problem('invalid_request', {
      detail: 'The only transfer coding is chunked.',
      headers: closing,
    });
  }
}

function hasPath(ctx: HttpContext): boolean {
  try {
    return !ambiguous.test(ctx.url) && ctx.path !== '';
  } catch {
    return false;
  }
}

function isRepeated({ rawHeaders }: IncomingMessage, name: string): boolean {
  let count = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const found = rawHeaders[i];
    if (found?.length === name.length && found.toLowerCase() === name) count++;
  }
  return count > 1;
}
