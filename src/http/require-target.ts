import type { IncomingMessage } from 'node:http';
import type { Context } from 'koa';
import { problem } from '../errors.ts';
import { closing } from './read-body.ts';

/** A host and a port (RFC 3986 §3.2.2 and §3.2.3), both of which may be empty. */
const hostPattern = /^(?:\[[\da-f:.]+\]|(?:[\w.~!$&'()*+,;=-]|%[\da-f]{2})*)(?::\d*)?$/i;

/**
 * Rejects a request whose target is ambiguous. A request line may hold an absolute URL (RFC 9112 §3.2.2); Koa throws
 * when it reads the path of a malformed one. `Host` is required in HTTP/1.1, must be sent once, and must be a host
 * (§3.2): a client that ignores this may not follow the framing of messages either. A proxy in front may read its next
 * request differently, so the connection ends.
 * @throws {Problem} `invalid_request`
 */
export function requireTarget(ctx: Context): void {
  try {
    void ctx.path;
  } catch {
    throw problem('invalid_request', { detail: 'The request target is not well-formed.' });
  }
  const { host } = ctx.req.headers;
  if (host === undefined ? ctx.req.httpVersion === '1.1' : !hostPattern.test(host) || countHosts(ctx.req) > 1)
    throw problem('invalid_request', { detail: 'A request must have one header Host, with a host.', headers: closing });
}

/** Node keeps the first of several `Host` headers, and says nothing of the others. */
function countHosts({ rawHeaders }: IncomingMessage): number {
  let count = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i];
    if (name?.length === 4 && name.toLowerCase() === 'host') count++;
  }
  return count;
}
