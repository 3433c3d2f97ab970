import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { Connections } from './connections.ts';
import { bodyLimits } from './route.ts';

export interface ApiServer {
  readonly http: Server;
  /** Closes each connection after its last response. New connections are still accepted. */
  closeAfterResponses(): void;
  /**
   * Refuses new connections and waits for the running requests and for responses that are still being sent.
   * @param maxMs after which all connections are cut
   * @returns false when requests or responses were cut off
   */
  drain(maxMs: number): Promise<boolean>;
}

interface ApiServerOptions {
  handle: (request: IncomingMessage, response: ServerResponse) => unknown;
  /** How long an idle connection stays open, in milliseconds: longer than the balancer in front keeps it. */
  keepAliveMs: number;
}

const limits = {
  headersTimeout: 5_000,
  requestTimeout: 15_000,
  connectionsCheckingInterval: 1_000,
  optimizeEmptyRequests: true, // a request without a body has nothing to read: saves 2 µs
};

/**
 * Maximum time without progress of a request or response; idle connections have `keepAliveMs`. A client that stops
 * reading is detected at the second check, after 24 s at most, because Node counts the bytes that it took before as
 * progress. The limit is longer than the 10 s that a request may take.
 */
const silenceMs = 12_000;
/** Maximum time that a response may have unsent bytes in memory, because its client reads too slowly. */
const maxSendMs = 60_000;
const checkMs = 1_000;
const drainCheckMs = 50;

/**
 * Creates the HTTP server of the API. Its time limits end slow and endless exchanges; normal clients never reach them.
 */
export function createApiServer({ handle, keepAliveMs }: ApiServerOptions): ApiServer {
  const connections = new Connections();
  const http = createServer({ ...limits, keepAliveTimeout: keepAliveMs }, (request, response) => {
    connections.onRequest(request.socket, response);
    handle(request, response);
  });
  http.timeout = silenceMs;
  http.maxHeadersCount = 100;
  http.closeIdleConnections = () => connections.closeIdle(); // `http.close` calls it
  http.on('connection', socket => connections.add(socket));
  // A request with `Expect: 100-continue` and a body that is too large is rejected before the client sends the body.
  http.on('checkContinue', (request, response) => {
    connections.onRequest(request.socket, response);
    if (!(Number(request.headers['content-length'] ?? 0) > bodyLimits.resource)) response.writeContinue();
    handle(request, response);
  });
  const check = setInterval(() => connections.cutSlowReaders(performance.now(), maxSendMs), checkMs).unref();
  http.on('close', () => clearInterval(check));
  return {
    http,
    closeAfterResponses: () => connections.closeAfterResponses(),
    drain: maxMs => drain(http, connections, maxMs),
  };
}

async function drain(http: Server, connections: Connections, maxMs: number): Promise<boolean> {
  let finished = true;
  connections.closeAfterResponses();
  const closed = new Promise(resolve => http.close(resolve));
  const sweep = setInterval(() => connections.closeIdle(), drainCheckMs);
  const timer = setTimeout(() => {
    finished = false;
    http.closeAllConnections();
  }, maxMs);
  await closed;
  clearInterval(sweep);
  clearTimeout(timer);
  return finished;
}
