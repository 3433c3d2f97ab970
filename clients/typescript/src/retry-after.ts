/**
 * Returns the wait that a response names, in ms, as seconds or as a date (RFC 9110 §10.2.3). A
 * date counts from that of the response, because the clock of this machine may be another one.
 */
export function retryAfterMs({ headers }: Pick<Response, 'headers'>): number | undefined {
  const text = headers.get('Retry-After');
  if (text === null) return undefined;

  const now = Date.parse(headers.get('Date') ?? '') || Date.now();
  const ms = /^\d+$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - now;
  return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}

/** Returns the wait that a response names, in whole seconds. */
export function retryAfterSeconds(response: Pick<Response, 'headers'>): number | undefined {
  const ms = retryAfterMs(response);
  return ms === undefined ? undefined : Math.ceil(ms / 1_000);
}

/** The least time over which clients that were limited together come back. */
const minSpreadMs = 1_000;

/**
 * Returns the time that a client waits when the service has named one: longer by a random part,
 * up to half of it, so that requests that were refused together do not come back together.
 */
export function spreadMs(askedMs: number): number {
  return askedMs + Math.max(minSpreadMs, askedMs / 2) * Math.random();
}
