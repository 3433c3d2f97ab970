type Send = (request: Request) => Promise<Response>;

interface RetryOptions {
  /** Repetitions of one request. */
  maxRetries: number;
  /** A longer `Retry-After` is returned instead of waited for, in ms. */
  maxWaitMs: number;
}

const firstWaitMs = 200;

/**
 * Wraps `send` so that it repeats requests that may be made twice: after a network error, 502, 503, 504, and after 409
 * with `Retry-After`, which says that the first of two requests with one key still runs.
 */
export function withRetries(send: Send, { maxRetries, maxWaitMs }: RetryOptions): Send {
  return async request => {
    for (let attempt = 0; attempt < maxRetries && isRepeatable(request); attempt++) {
      let waitMs = firstWaitMs * 2 ** attempt * (0.5 + Math.random() / 2);
      try {
        const response = await send(request.clone());
        if (!asksToRepeat(response)) return response;
        waitMs = retryAfterMs(response) ?? waitMs;
        if (waitMs > maxWaitMs) return response;
        await response.body?.cancel();
      } catch (error) {
        if (request.signal.aborted) throw error;
      }
      await wait(waitMs, request.signal);
    }
    return send(request);
  };
}

/** A refresh that is repeated within a minute returns the same tokens. */
function isRepeatable({ method, headers, url }: Request): boolean {
  return method === 'GET' || method === 'HEAD' || headers.has('Idempotency-Key') || url.endsWith('/auth/refresh');
}

function asksToRepeat({ status, headers }: Response): boolean {
  return status === 502 || status === 503 || status === 504 || (status === 409 && headers.has('Retry-After'));
}

/** The wait that a response names, as seconds or as a date (RFC 9110 §10.2.3). */
function retryAfterMs({ headers }: Response): number | undefined {
  const text = headers.get('Retry-After');
  if (text === null) return undefined;
  const ms = /^\d+$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}

/** @throws the reason of the signal once it is aborted */
function wait(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', abort);
      resolve();
    }, ms);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
  });
}
