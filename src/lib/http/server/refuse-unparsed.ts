import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Logger } from 'pino';
import { type ProblemCode, problem } from '../../problems.ts';
import type { RequestOutcome } from '../steps/access-log.ts';
import { refusalHeaders } from '../steps/cors.ts';
import { problemBody } from '../steps/problem-details.ts';
import { fixedHeaders } from '../steps/security-headers.ts';

/** Codes of the errors that Node reports for bytes which are no request. */
const codeOfError: Record<string, ProblemCode> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 'payload_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
};

/** Answers bytes that are no HTTP request, and closes the connection. */
export type RefuseUnparsed = (
  error: Error & { code?: string; rawPacket?: Buffer },
  socket: Socket,
) => void;

/**
 * Returns a listener for `clientError` of an HTTP server. It answers bytes that the parser
 * refuses with a problem, as all other errors are answered, and writes a line of the access
 * log.
 * @param count also receives each outcome, for the metrics
 * @param origins the origins whose scripts may read responses
 */
export function refuseUnparsed(
  log: Logger,
  count: (outcome: RequestOutcome) => void,
  origins: readonly string[] = [],
): RefuseUnparsed {
  return function refuse(error, socket) {
    if (error.code === 'ECONNRESET' || !socket.writable) {
      socket.destroy();
      return;
    }

    const { code, status } = problem(codeOfError[error.code ?? ''] ?? 'invalid_request');
    const traceId = randomUUID();
    const body = JSON.stringify(problemBody(code, traceId));

    const headers = {
      ...fixedHeaders,
      ...refusalHeaders(origins, error.rawPacket),
      'X-Request-Id': traceId,
    };
    socket.end(responseText(status, headers, body), () => socket.destroy());

    count({
      method: 'none',
      route: undefined,
      status,
      ms: 0,
      bytes: Buffer.byteLength(body),
      tenant: undefined,
      reason: code,
    });
    log.info({ traceId, status, code, cause: error.code, ip: socket.remoteAddress });
  };
}

/** Returns the bytes of a response, for a connection without a `ServerResponse`. */
function responseText(status: number, headers: Record<string, string>, body: string): string {
  const all = {
    ...headers,
    'Content-Type': 'application/problem+json',
    'Content-Length': Buffer.byteLength(body),
    Date: new Date().toUTCString(),
    Connection: 'close',
  };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}`);
  return [`HTTP/1.1 ${status} ${STATUS_CODES[status]}`, ...lines, '', body].join('\r\n');
}
