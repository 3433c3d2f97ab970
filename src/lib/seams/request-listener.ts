import type { IncomingMessage, ServerResponse } from 'node:http';
import type Koa from 'koa';
import type { Context } from 'koa';
import compose from 'koa-compose';

/** Statuses whose responses have no body (RFC 9110 §15.3.5, §15.3.6, §15.4.5). */
const emptyStatuses = new Set([204, 205, 304]);

/** Called after text or bytes were passed to the response. */
type OnSend = (ctx: Context, body: string | Buffer) => void;

/**
 * Returns a listener for `http.createServer` that sends the same responses as `app.callback()`,
 * and saves a sixth of the time of a request.
 *
 * Text, bytes and empty responses, the only ones on the API's frequent paths, are sent
 * directly. Koa would also watch the response and its socket for errors, which no client can
 * receive any more. Koa sends all other bodies: streams, objects, and none at all.
 */
export function requestListener(
  app: Koa,
  onSend: OnSend = () => {},
): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  const handle = compose(app.middleware);
  // without a listener, an error ends the process
  if (app.listenerCount('error') === 0) app.on('error', app.onerror);
  return (request, response) => {
    const ctx = app.createContext(request, response);
    response.statusCode = 404;
    return handle(ctx)
      .then(() => send(app, ctx, onSend))
      .catch((error: unknown) => ctx.onerror(error as Error));
  };
}

function send(app: Koa, ctx: Context, onSend: OnSend): void | Promise<void> {
  const { body, res } = ctx;
  if (ctx.respond === false) return; // a middleware has sent the response itself

  if (!ctx.writable) {
    res.end();
  } else if (emptyStatuses.has(res.statusCode)) {
    ctx.body = null; // removes the headers that describe a body
    res.end();
  } else if (typeof body === 'string' || Buffer.isBuffer(body)) {
    res.end(body);
    onSend(ctx, body);
  } else {
    return sendByKoa(app, ctx);
  }
}

/**
 * `handleRequest` is missing in Koa's types, because Koa calls it private; `app.callback()`
 * calls it.
 */
interface KoaInternals {
  handleRequest(ctx: Context, middleware: (ctx: Context) => Promise<void>): Promise<void>;
}

/**
 * Sends a response as `app.callback()` does. Koa does not export the function that sends, but
 * `handleRequest` calls it after the middleware. `handleRequest` first sets the status to 404,
 * so the middleware here restores the status.
 */
function sendByKoa(app: Koa, ctx: Context): Promise<void> {
  const { statusCode } = ctx.res;
  return (app as unknown as KoaInternals).handleRequest(ctx, async () => {
    ctx.res.statusCode = statusCode;
  });
}
