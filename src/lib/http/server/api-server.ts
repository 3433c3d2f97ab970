import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { Server as NetServer, Socket } from 'node:net';
import { Connections } from './connections.ts';
import { PipelinedRequest } from './pipelined-request.ts';
import type { RefuseUnparsed } from './refuse-unparsed.ts';

export type ApiServer = ReturnType<typeof createApiServer>;

export interface ApiServerOptions {
  handle: (request: IncomingMessage, response: ServerResponse) => unknown;
  /** Answers bytes that the parser refuses. */
  refuse: RefuseUnparsed;
  /**
   * Milliseconds for which an idle connection stays open: longer than the balancer in front
   * keeps it.
   */
  keepAliveMs: number;
  /**
   * Maximum time without progress of a request or response: longer than a request may take, by
   * default for 10 s.
   */
  silenceMs?: number;
  /** Shortened in tests. */
  limits?: typeof defaultLimits;
}

/**
 * Times in milliseconds: for the head of a request, for the whole request, and between two
 * checks of both. An upload may take longer: see `readUpload`.
 */
const defaultLimits = {
  headersTimeout: 5_000,
  requestTimeout: 15_000,
  connectionsCheckingInterval: 1_000,
};

/**
 * Idle connections have `keepAliveMs` instead. A body that is read gets 408 (`readBody`),
 * before `requestTimeout` does it; any other exchange is cut. A client that stops reading is
 * detected at the second check, after 24 s at most, because Node counts the bytes that it took
 * before as progress.
 */
const defaultSilenceMs = 12_000;
/**
 * Maximum time that a response may have unsent bytes in memory, because its client reads too
 * slowly.
 */
const maxSendMs = 60_000;
const checkMs = 1_000;
const drainCheckMs = 50;

/**
 * Creates the HTTP server of the API. Its time limits end slow and endless exchanges; normal
 * clients never reach them.
 */
export function createApiServer({
  handle,
  refuse,
  keepAliveMs,
  limits = defaultLimits,
  silenceMs = defaultSilenceMs,
}: ApiServerOptions) {
  const connections = new Connections();
  const optimizeEmptyRequests = true; // a request without a body is not read: saves 2 µs
  const onRequest = (request: IncomingMessage, response: ServerResponse): void =>
    connections.onRequest(request, response, () => handle(request, response));

  const http = createServer(
    {
      ...limits,
      optimizeEmptyRequests,
      keepAliveTimeout: keepAliveMs,
      requireHostHeader: false, // `requireTarget` answers with a problem
      IncomingMessage: PipelinedRequest,
    },
    onRequest,
  );

  http.timeout = silenceMs;
  http.maxHeadersCount = 100;
  http.on('connection', socket => connections.add(socket));

  http.on('clientError', (error: Error & { code?: string }, socket) => {
    if (!(socket instanceof Socket)) return void socket.destroy();

    // Node reports this once for a request, and does not limit its time afterwards.
    if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT' && connections.isUploading(socket)) {
      return;
    }
    if (connections.closeAfterRequests(socket)) return;
    if (connections.isAnswering(socket)) socket.destroy();
    else refuse(error, socket);
  });

  // Node would ask for every body; `askForBody` asks only for one that is read
  http.on('checkContinue', onRequest);
  // Node would answer any other expectation, past all limits
  http.on('checkExpectation', onRequest);

  const check = setInterval(
    () => connections.cutSlowReaders(performance.now(), maxSendMs),
    checkMs,
  ).unref();
  http.on('close', () => clearInterval(check));

  return {
    http,
    /** Closes each connection after its last response. New connections are still accepted. */
    closeAfterResponses: () => connections.closeAfterResponses(),

    /**
     * Refuses new connections, or, in a worker process, leaves them to the others.
     * @returns when all are closed
     */
    refuseConnections: () => refuseConnections(http),

    /**
     * Refuses new connections and waits for the running requests and for responses that are
     * still being sent. A request that does not arrive within the time limits is ended, as at
     * any other time; that does not count as cut off.
     * @param maxMs after which all connections are cut
     * @returns false when requests or responses were cut off
     */
    drain: (maxMs: number) => drain(http, connections, maxMs, limits.headersTimeout),
  };
}

/**
 * Refuses new connections without `http.close`, which ends Node's check of the time limits, so
 * that an endless request would not be ended.
 */
function refuseConnections(http: Server): Promise<void> {
  return new Promise(resolve => NetServer.prototype.close.call(http, () => resolve()));
}

async function drain(
  http: Server,
  connections: Connections,
  maxMs: number,
  maxHeadMs: number,
): Promise<boolean> {
  let finished = true;
  connections.closeAfterResponses();
  const closed = refuseConnections(http);
  const closeIdle = (): void => connections.closeIdle(performance.now(), maxHeadMs);
  closeIdle();
  // A late timer runs before the data that have arrived meanwhile are read.
  const sweep = setInterval(() => setImmediate(closeIdle), drainCheckMs);
  const timer = setTimeout(() => {
    finished = false;
    http.closeAllConnections();
  }, maxMs);
  await closed;
  http.close(); // ends Node's check
  clearInterval(sweep);
  clearTimeout(timer);

  return finished;
}
