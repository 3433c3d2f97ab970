import type { components } from './api.ts';
import { ProblemError, problemOf } from './problem-error.ts';
import { writeQuery } from './query.ts';
import { drop } from './response-body.ts';
import { wait } from './retries.ts';
import { unlessAborted } from './unless-aborted.ts';

export type Change = components['schemas']['Change'];

export interface ChangesQuery {
  /**
   * The `Id` of a change, or `now`. Without it, `changes` begins with the oldest change,
   * `followChanges` now.
   */
  after?: string | undefined;
  /** Names of resources, separated by commas; all by default. */
  resource?: string | undefined;
  /** Adds the record to each change. */
  include?: 'record' | undefined;
}

interface Connection {
  send: (request: Request) => Promise<Response>;
  baseUrl: string;
}

const minRetryMs = 1_000;
/** Maximum wait between two connections while the service cannot be reached. */
const maxRetryMs = 30_000;
/**
 * The service sends a comment every 15 s: a stream that is silent for longer was lost
 * unnoticed.
 */
const maxSilenceMs = 45_000;

/**
 * Yields changes as they happen, without end: connects again when the stream was lost, and goes
 * on where it was.
 * @throws {ProblemError} such as `cursor_expired`, or when the caller may no longer read
 */
export async function* followChanges(
  { send, baseUrl }: Connection,
  { after = 'now', ...query }: ChangesQuery,
  signal?: AbortSignal,
): AsyncGenerator<Change, void> {
  let last = after;
  let retryMs = minRetryMs;
  let failures = 0;

  for (;;) {
    const address = `${baseUrl}/api/v1/Changes/stream?${writeQuery({ ...query, after: last })}`;
    const headers = { Accept: 'text/event-stream' };
    failures++;

    try {
      const request = new Request(address, { headers, ...(signal && { signal }) });
      const response = await unlessAborted(send(request), signal);
      const body = await streamOf(response);

      for await (const { id, event, data, retry } of body ? readEvents(body, signal) : []) {
        failures = 0;
        if (retry !== undefined) retryMs = Number(retry);
        if (data !== undefined && event === undefined) yield JSON.parse(data) as Change;
        if (id !== undefined) last = id;
      }
    } catch (error) {
      // a lost connection is a TypeError
      if (signal?.aborted || !(error instanceof TypeError)) throw error;
    }

    await wait(Math.min(retryMs * 2 ** Math.max(0, failures - 1), maxRetryMs), signal);
  }
}

/**
 * Returns the stream of a response; undefined when it may exist later: the service is busy or
 * away, or a proxy or the login page of a network has responded in its place.
 * @throws {ProblemError} for a refusal
 */
async function streamOf(response: Response): Promise<ReadableStream<Uint8Array> | undefined> {
  const { ok, status, headers, body } = response;
  if (ok && body && headers.get('Content-Type')?.startsWith('text/event-stream')) return body;

  const isRefusal = !ok && status < 500 && status !== 407 && status !== 429;
  if (isRefusal) throw new ProblemError(status, await problemOf(response));

  drop(response);
  return undefined;
}

/** The fields of an event. */
type StreamEvent = Partial<Record<'id' | 'event' | 'data' | 'retry', string>>;

/**
 * Yields the complete events of a stream.
 * @throws {TypeError} when it is silent for too long
 */
async function* readEvents(
  body: ReadableStream<Uint8Array>,
  signal: AbortSignal | undefined,
): AsyncGenerator<StreamEvent, void> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let text = '';

  try {
    for (;;) {
      const { done, value } = await withinSilence(unlessAborted(reader.read(), signal));
      if (done) return;

      text += decoder.decode(value, { stream: true });
      const events = text.split('\n\n');
      text = events.pop() ?? '';
      yield* events.map(eventOf);
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}

function eventOf(text: string): StreamEvent {
  const fields = text.split('\n').map(line => {
    const [name = '', ...rest] = line.split(': ');
    return [name, rest.join(': ')];
  });
  return Object.fromEntries(fields);
}

/** Half-open connections, after a sleep or a change of networks, neither send nor end. */
async function withinSilence<T>(reading: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new TypeError('the stream is silent')), maxSilenceMs);
  });

  try {
    return await Promise.race([reading, silence]);
  } finally {
    clearTimeout(timer);
  }
}
