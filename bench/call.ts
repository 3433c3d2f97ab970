import { Agent, type IncomingHttpHeaders, request as send } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import pLimit from 'p-limit';
import type { Plan, Request } from './plan.ts';
import type { Target } from './targets.ts';

export interface HttpResponse {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const maxWaitMs = 120_000;

const agent = new Agent({ keepAlive: true, maxSockets: 16 });

/**
 * Sends one request. Retries once on ECONNRESET, because the server may have closed a
 * keep-alive connection.
 */
export async function call(url: string, request: Request): Promise<HttpResponse> {
  try {
    return await attempt(url, request);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ECONNRESET') throw error;
    return attempt(url, request);
  }
}

function attempt(url: string, { method, path, headers, body }: Request): Promise<HttpResponse> {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { 'Content-Length': Buffer.byteLength(body) };
    const sent = send(
      url + path,
      { method, headers: { ...headers, ...length }, agent },
      response => {
        text(response).then(
          content =>
            resolve({ status: response.statusCode ?? 0, headers: response.headers, body: content }),
          reject,
        );
      },
    );
    sent.on('error', reject);
    sent.end(body);
  });
}

/**
 * Sends a request that prepares a measurement, and repeats it while it is refused (429 or 503)
 * with `Retry-After`, after the time that this header says, for two minutes of waits.
 */
export async function prepare(url: string, request: Request): Promise<HttpResponse> {
  for (let waitedMs = 0; ; ) {
    const response = await call(url, request);
    const seconds = Number.parseInt(response.headers['retry-after'] ?? '', 10);
    const waitMs = Math.max(seconds * 1_000, 100); // 0 means at once; NaN without the header
    const isRefused = response.status === 429 || response.status === 503;
    if (!isRefused || !(waitedMs + waitMs <= maxWaitMs)) return response;
    await sleep(waitMs);
    waitedMs += waitMs;
  }
}

const concurrency = 8;

/**
 * Sends every request of a plan once.
 * @throws {Error} on a response other than the plan expects
 */
export async function checkPlan(
  target: Pick<Target, 'name' | 'url'>,
  { requests, expect }: Plan,
): Promise<void> {
  await pLimit(concurrency).map(requests, async request => {
    const { status, body } = await prepare(target.url, request);
    const records = expect.records === undefined ? undefined : JSON.parse(body || '[]').length;
    if (status === expect.status && records === expect.records) return;
    const received = `${status}${records === undefined ? '' : ` with ${records} records`} ${body.slice(0, 200)}`;
    throw new Error(
      `${target.name}: ${request.method} ${request.path} returned ${received}; expected ${JSON.stringify(expect)}`,
    );
  });
}
