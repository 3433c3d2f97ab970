import type { IncomingMessage, ServerResponse } from 'node:http';
import type Koa from 'koa';
import compose from 'koa-compose';

/**
 * `app.callback()`, less what an API that answers with text and bytes has no use for, a sixth of what a request costs:
 * Koa listens to every answer and its socket for errors that nobody can be told of any more, and looks for ways to send
 * streams and objects.
 */
export function requestListener(app: Koa): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  const handle = compose(app.middleware);
  if (app.listenerCount('error') === 0) app.on('error', app.onerror); // without one, the first fault would end the process
  return (request, response) => {
    const ctx = app.createContext(request, response);
    response.statusCode = 404;
    const send = (): void => {
      const { body } = ctx;
      if (!ctx.writable || body === null || body === undefined) response.end();
      else response.end(body);
    };
    return handle(ctx)
      .then(send)
      .catch((error: unknown) => ctx.onerror(error as Error));
  };
}
