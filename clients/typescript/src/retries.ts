import { drop, isJson } from './response-body.ts';
import { retryAfterMs, spreadMs } from './retry-after.ts';
import { unlessAborted } from './unless-aborted.ts';

type Send = (request: Request) => Promise<Response>;
/**
 * Sends a request until the signal of the application is aborted, which is passed beside the
 * request: see `unlessAborted`.
 */
export type SendUntil = (
  request: Request,
  signal?: AbortSignal | null | undefined,
) => Promise<Response>;

interface RetryOptions {
  /** Repetitions of one request. */
  maxRetries: number;
  /** A longer `Retry-After` is returned instead of waited for, in ms. */
  maxWaitMs: number;
}

const firstWaitMs = 200;
/**
 * The service responds within 20 s, and sends a body without a pause: a request without a
 * response for longer was lost, and so was one whose JSON pauses for longer.
 */
const maxResponseMs = 30_000;
/** A file of 5 MB, over a slow line. */
const maxUploadMs = 10 * 60_000;

/**
 * Wraps `send` so that it repeats requests that may be made twice: after a network error, also
 * in the middle of a body of JSON, after a page of a proxy in place of JSON, after 502, 503 and
 * 504, and after 409 with `Retry-After`, which says that the first of two requests with one key
 * still runs. A request that was limited (429) was not made, so each one is repeated.
 */
export function withRetries(send: Send, { maxRetries, maxWaitMs }: RetryOptions): SendUntil {
  return async function sendWithRetries(request, signal) {
    const isRepeatable = mayBeMadeTwice(request);

    for (let attempt = 0; ; attempt++) {
      const isLast = attempt >= maxRetries;
      let waitMs = firstWaitMs * 2 ** attempt * (0.5 + Math.random() / 2);

      try {
        const response = isRepeatable
          ? await sendOnce(send, request.clone(), signal)
          : await unlessAborted(send(request.clone()), signal);
        const isRepeated = isLimited(response, request) || (isRepeatable && asksToRepeat(response));
        if (isLast || !isRepeated) return response;

        const askedMs = retryAfterMs(response);
        if (askedMs !== undefined && askedMs > maxWaitMs) return response;
        if (askedMs !== undefined) waitMs = Math.max(waitMs, spreadMs(askedMs));
        drop(response);
      } catch (error) {
        if (isLast || !isRepeatable || signal?.aborted) throw error;
      }

      await wait(waitMs, signal);
    }
  };
}

/**
 * Sends a request whose response may be asked for again. Reads JSON to its end, so that a
 * connection that is lost in its middle is noticed here; the body stays readable.
 * @throws {TypeError} when there is no response in time, as for any other lost connection
 */
async function sendOnce(
  send: Send,
  request: Request,
  ended: AbortSignal | null | undefined,
): Promise<Response> {
  const late = new AbortController();
  const signal = ended ? AbortSignal.any([ended, late.signal]) : late.signal;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const waitAtMost = (ms: number): void => {
    clearTimeout(timer);
    timer = setTimeout(() => late.abort(new TypeError('the service did not respond in time')), ms);
  };

  waitAtMost(isUpload(request) ? maxUploadMs : maxResponseMs);
  const sending = send(new Request(request, { signal }));
  let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;

  try {
    const response = await unlessAborted(sending, signal);
    waitAtMost(maxResponseMs);
    if (isJson(response)) reader = response.clone().body?.getReader();
    while (reader && !(await unlessAborted(reader.read(), signal)).done) {
      waitAtMost(maxResponseMs);
    }

    return response;
  } catch (error) {
    // Both halves of the body: the connection ends with the last one.
    void reader?.cancel().catch(() => {});
    sending.then(drop, () => {});
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/**
 * A refresh that is repeated within a minute returns the same tokens, and a logout ends a
 * session once.
 */
function mayBeMadeTwice({ method, headers, url }: Request): boolean {
  const isRead = method === 'GET' || method === 'HEAD';
  return isRead || headers.has('Idempotency-Key') || /\/auth\/(refresh|logout)$/.test(url);
}

function asksToRepeat(response: Response): boolean {
  const { status, headers } = response;
  const isUnavailable = status === 502 || status === 503 || status === 504;
  return isUnavailable || (status === 409 && headers.has('Retry-After')) || isPage(response);
}

/**
 * True for a request that was refused before it was made. A person who logs in sees that at
 * once.
 */
function isLimited({ status, headers }: Response, { url }: Request): boolean {
  return (
    status === 429 &&
    headers.has('Retry-After') &&
    !/\/auth\/(login|login\/verify|exchange)$/.test(url)
  );
}

/**
 * True for a page in place of a success: that of a network's login, for instance. The API has
 * no pages.
 */
function isPage({ ok, headers }: Response): boolean {
  return ok && /^text\/html\b/i.test(headers.get('Content-Type') ?? '');
}

/** True for a file: a body of JSON has at most 64 KiB. */
function isUpload({ headers }: Request): boolean {
  return headers.has('Content-Type') && !isJson({ headers });
}

/** @throws the reason of the signal once it is aborted */
export function wait(ms: number, signal: AbortSignal | null | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);

    if (signal?.aborted) abort();
    else signal?.addEventListener('abort', abort, { once: true });
  });
}
