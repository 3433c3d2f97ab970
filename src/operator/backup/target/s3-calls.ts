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

    const body = bytesOf(request.body);
    const acknowledge = calls.send(body.length);
    const watch = new SilenceWatch(calls, call);

    const { response } = await handle(
      body.length > sliceBytes ? { ...request, body: slicesOf(body, watch) } : request,
      { ...options, abortSignal: watch.signal },
    )
      .catch(error => {
        throw watch.signal.aborted ? watch.signal.reason : error;
      })
      .finally(() => {
        watch.end();
        acknowledge();
      });
    refuseRedirect(description, response);
    limitBody(description, response, calls, call);

    return { response };
  };
}

/** The bytes of a body between two of which its connection may be silent. */
const sliceBytes = 64 * 1024;

/** Returns the body of a request: the client holds all bodies in memory. */
function bytesOf(body: unknown): Uint8Array {
  return body instanceof Uint8Array ? body : new Uint8Array();
}

/** Sends a body in slices, so that each one that the connection takes ends its silence. */
function slicesOf(body: Uint8Array, watch: SilenceWatch): Readable {
  function* slices(): Generator<Uint8Array> {
    for (let at = 0; at < body.length; at += sliceBytes) {
      watch.hear();
      yield body.subarray(at, at + sliceBytes);
    }
  }

  return Readable.from(slices(), { objectMode: false });
}

/**
 * Aborts a request when its connection takes no byte, and no response begins, for as long as a
 * call may be silent. That time grows when other calls send bytes meanwhile. It does not shrink
 * when these are acknowledged: a line may have passed them on first.
 */
class SilenceWatch {
  readonly #calls: TargetCalls;
  readonly #call: string;
  readonly #abort = new AbortController();
  #heardAt = performance.now();
  #maxSilenceMs = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(calls: TargetCalls, call: string) {
    this.#calls = calls;
    this.#call = call;
    this.#wait();
  }

  /** Aborts with the error of the silence as its reason. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Records that the connection took bytes. */
  hear(): void {
    this.#heardAt = performance.now();
  }

  end(): void {
    clearTimeout(this.#timer);
  }

  #wait(): void {
    this.#maxSilenceMs = Math.max(this.#maxSilenceMs, this.#calls.maxSilenceMs);
    const leftMs = this.#heardAt + this.#maxSilenceMs - performance.now();

    if (leftMs > 0) {
      this.#timer = setTimeout(() => this.#wait(), Math.ceil(leftMs));
    } else {
      this.#abort.abort(this.#calls.silent(this.#call, this.#maxSilenceMs));
    }
  }
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
