import { setTimeout as sleep } from 'node:timers/promises';

/** The part of a response that says whether the request may be repeated. */
interface Answer {
  readonly status: number;
  readonly headers: { readonly 'retry-after'?: string | undefined };
}

const maxWaitMs = 120_000;

/**
 * Sends a request again while it is refused (429 or 503) with `Retry-After`, after the time that this header says, for
 * two minutes of waits. For what prepares a measurement, never for what is measured.
 */
export async function repeatRefused<Response extends Answer>(
  send: () => Promise<Response>,
  pause: (ms: number) => Promise<unknown> = sleep,
): Promise<Response> {
  for (let waitedMs = 0; ; ) {
    const response = await send();
    const ms = Number.parseInt(response.headers['retry-after'] ?? '', 10) * 1_000;
    const isRefused = response.status === 429 || response.status === 503;
    if (!isRefused || !(ms >= 0) || waitedMs + ms > maxWaitMs) return response;
    const waitMs = Math.max(ms, 100); // 0 means at once
    await pause(waitMs);
    waitedMs += waitMs;
  }
}
