import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { bodyLimits } from './route.ts';

/** Creates the HTTP server of the API. Its limits end slow and endless requests, far above what a client needs. */
export function createApiServer(handle: (request: IncomingMessage, response: ServerResponse) => unknown): Server {
  const limits = {
    headersTimeout: 5_000,
    requestTimeout: 15_000,
    keepAliveTimeout: 5_000,
    connectionsCheckingInterval: 1_000,
    optimizeEmptyRequests: true, // a request without a body has nothing to read: saves 2 µs
  };
  const server = createServer(limits, handle);
  server.maxHeadersCount = 100;
  // A client that sends `Expect: 100-continue` is refused before it sends a body that is too large.
  server.on('checkContinue', (request, response) => {
    if (!(Number(request.headers['content-length'] ?? 0) > bodyLimits.resource)) response.writeContinue();
    handle(request, response);
  });
  return server;
}

const sweepMs = 50;

/**
 * Refuses new connections and waits for the running requests, at most `maxMs` milliseconds.
 * @returns false when requests were cut off
 */
export async function drain(server: Server, maxMs: number): Promise<boolean> {
  let finished = true;
  const closed = new Promise(resolve => server.close(resolve));
  // Closes connections as they become idle, so that no client sends another request on one.
  const sweep = setInterval(() => server.closeIdleConnections(), sweepMs);
  const timer = setTimeout(() => {
    finished = false;
    server.closeAllConnections();
  }, maxMs);
  await closed;
  clearInterval(sweep);
  clearTimeout(timer);
  return finished;
}
