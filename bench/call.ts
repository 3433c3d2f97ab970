import { Agent, type IncomingHttpHeaders, request as send } from 'node:http';
import { text } from 'node:stream/consumers';
import { eachOf } from './bench-tenants.ts';
import type { Plan, Request } from './plan.ts';
import type { Target } from './targets.ts';

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const agent = new Agent({ keepAlive: true, maxSockets: 16 });

/** One request from this process. A kept connection that the server has closed meanwhile is replaced by a new one. */
export async function call(url: string, request: Request): Promise<Answer> {
  try {
    return await attempt(url, request);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ECONNRESET') throw error;
    return attempt(url, request);
  }
}

function attempt(url: string, { method, path, headers, body }: Request): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { 'Content-Length': Buffer.byteLength(body) };
    const sent = send(url + path, { method, headers: { ...headers, ...length }, agent }, response => {
      text(response).then(
        content => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: content }),
        reject,
      );
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

const atOnce = 8;

/** Sends every request of a plan once, and checks that all of them are answered as they should. */
export async function checkPlan(target: Target, { requests, expect }: Plan): Promise<void> {
  await eachOf(requests, atOnce, async request => {
    const { status, body } = await call(target.url, request);
    const records = expect.records === undefined ? undefined : JSON.parse(body || '[]').length;
    if (status === expect.status && records === expect.records) return;
    const got = `${status}${records === undefined ? '' : ` with ${records} records`} ${body.slice(0, 200)}`;
    throw new Error(
      `${target.name}: ${request.method} ${request.path} was answered ${got}; expected ${JSON.stringify(expect)}`,
    );
  });
}
