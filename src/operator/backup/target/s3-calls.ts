import { Readable } from 'node:stream';
import type { S3Client } from '@aws-sdk/client-s3';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { remedyOf } from './s3-refusal.ts';
import type { TargetCalls } from './target-calls.ts';

/** The parts of a request of HTTP that name its call: `HttpRequest` of the SDK. */
export interface StoreRequest {
  readonly method: string;
  readonly path: string;
  readonly query?: Readonly<Record<string, unknown>>;
}

/** The parts of a response of HTTP that matter here: `HttpResponse` of the SDK. */
interface StoreResponse {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, string>>;
  body?: unknown;
}

/**
 * Puts every request of a client under the rules of a target: a login is sent to no other host
 * than that of the store, a body may take long but not be silent, and a store that is silent is
 * given up.
 * @param callOf names the present call, for messages
 */
export function limitCalls(
  client: S3Client,
  description: string,
  calls: TargetCalls,
  callOf: (request: StoreRequest) => string,
): void {
  const { requestHandler } = client.config;
  const handle = requestHandler.handle.bind(requestHandler);

  requestHandler.handle = async function handleLimited(request, options) {
    const call = callOf(request);
    calls.begin(call);
    const { response } = await handle(request, options).catch(error => {
      throw isSilence(error) ? calls.silent(call) : error;
    });
    refuseRedirect(description, response);
    limitBody(description, response, calls, call);

    return { response };
  };
}

/**
 * Errors of a connection that the store, or a proxy before it, has closed. They do not count as
 * silence.
 */
const closedConnection = ['ECONNRESET', 'EPIPE'];

/**
 * True for an error of silence. The SDK gives the same name to a connection that was silent, to
 * one that was not made in time, and to a closed one.
 */
function isSilence(error: unknown): boolean {
  const { name, code } = error as NodeJS.ErrnoException;

  return name === 'TimeoutError' && !closedConnection.includes(code ?? '');
}

function refuseRedirect(description: string, response: StoreResponse): void {
  const { statusCode, headers, body } = response;
  if (statusCode < 300 || statusCode >= 400) return;

  // an unread body would keep its connection, and so a command, open
  if (body instanceof Readable) body.destroy();

  const { location = '' } = headers;
  const host = URL.canParse(location) ? new URL(location).host : 'another address';
  throw new OperatorError(
    `${description} redirects to ${host} (${statusCode}), which gets no login. ` +
      remedyOf('PermanentRedirect'),
  );
}

/**
 * Limits the silence of a body. Only the time in which the store sends nothing counts, not the
 * time for which the consumer is busy.
 */
function limitBody(
  description: string,
  response: StoreResponse,
  calls: TargetCalls,
  call: string,
): void {
  const { body } = response;
  if (!(body instanceof Readable)) return;

  // The time limit of the socket would count while the body is not read.
  (body as Readable & { setTimeout?: (ms: number) => void }).setTimeout?.(0);
  response.body = Readable.from(chunksOf(description, body, calls, call), { objectMode: false });
}

async function* chunksOf(
  description: string,
  body: Readable,
  calls: TargetCalls,
  call: string,
): AsyncGenerator<Buffer> {
  const chunks = body[Symbol.asyncIterator]();

  try {
    for (;;) {
      const { done, value } = await calls.wait(call, () => chunks.next());
      if (done) break;
      yield value;
    }
    calls.answered();
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    const { code, name } = error as NodeJS.ErrnoException;
    throw new OperatorError(
      `${description} closed the connection: ${call} (${code ?? name}). Try again`,
      {
        cause: error,
      },
    );
  } finally {
    // without effect on a connection whose response is complete
    body.on('error', () => {}).destroy();
  }
}
