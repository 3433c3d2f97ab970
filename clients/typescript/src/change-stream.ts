import type { components } from './api.ts';
import { readPages } from './pages.ts';
import { ProblemError, problemErrorOf } from './problem-error.ts';
import { writeQuery } from './query.ts';
import { type SendUntil, wait } from './retries.ts';
import { spreadMs } from './retry-after.ts';
import type { OpenedStream } from './session.ts';
import { unlessAborted } from './unless-aborted.ts';

export type Change = components['schemas']['Change'];

/** What a change has beside its fields: the record, and its tag. */
export type ChangeInclude = 'record' | 'etag' | 'record,etag';

/** `open` while changes come as they happen; `waiting` while they come later. */
export type FollowStatus = 'open' | 'waiting';

/**
 * Called with each change of the status.
 * @param error the cause of a wait, such as a `ProblemError` with the status 429; undefined when
 *   the service has ended the stream in order
 */
export type StatusListener = (status: FollowStatus, error?: Error) => void;

export interface StreamConnection {
  readonly baseUrl: string;
  readonly send: SendUntil;
  readonly openStream: (request: Request, signal?: AbortSignal) => Promise<OpenedStream>;
}

interface StreamOptions {
  /** The place after which the changes begin. */
  readonly after: string;
  /** Names of resources, separated by commas; all by default. */
  readonly resource?: string | undefined;
  readonly include?: ChangeInclude | undefined;
  readonly signal: AbortSignal | undefined;
  readonly onStatus: StatusListener;
  /** Called when a stream begins, and when it says that it is alive, without a change. */
  readonly onAlive?: () => void;
}

/** The reasons of the last event of a stream after which the client goes on without a wait. */
const reasonsToGoOn = new Set(['token_expired', 'cursor_expired']);

const firstRetryMs = 1_000;
/** Maximum wait between two connections while the service cannot be reached. */
const maxRetryMs = 30_000;
/**
 * The service sends a comment every 15 s: a stream that is silent for longer was lost
 * unnoticed.
 */
const maxSilenceMs = 45_000;

/**
 * Yields changes as they happen, without end: connects again when the stream was lost, and goes
 * on where it was. Where there is no room for another stream, it reads pages meanwhile.
 * @throws {ProblemError} such as `cursor_expired`, or when the caller may no longer read
 */
export async function* streamChanges(
  connection: StreamConnection,
  { after, signal, onStatus, onAlive, ...filter }: StreamOptions,
): AsyncGenerator<Change, void> {
  const { baseUrl, openStream } = connection;
  let last = after;
  let pauseMs = firstRetryMs;
  let failures = 0;

  for (;;) {
    const address = `${baseUrl}/api/v1/Changes/stream?${writeQuery({ ...filter, after: last })}`;
    const headers = { Accept: 'text/event-stream' };
    let mayGoOn = false;
    let cause: Error | undefined;
    failures++;

    try {
      const request = new Request(address, { headers, ...(signal && { signal }) });
      const { response, renew } = await unlessAborted(openStream(request, signal), signal);
      const startedAt = performance.now();
      let reason = '';

      for await (const { id, event, data, retry } of readEvents(await streamOf(response), signal)) {
        failures = 0;
        if (retry !== undefined) pauseMs = Number(retry);
        if (event === 'end') reason = reasonOf(data);
        if (data !== undefined && event === undefined) yield JSON.parse(data) as Change;
        if (id !== undefined) last = id;
        onStatus('open');
        if (data === undefined) onAlive?.();
      }

      const isReady = reason === 'token_expired' ? await renew() : true;
      // A stream that ends at its beginning would otherwise begin again without a pause.
      const hasLasted = performance.now() - startedAt > pauseMs;
      mayGoOn = isReady && hasLasted && reasonsToGoOn.has(reason);
    } catch (error) {
      if (signal?.aborted || !mayPass(error)) throw error;
      cause = error;
    }

    if (mayGoOn) continue;
    onStatus('waiting', cause);

    if (cause instanceof ProblemError && cause.status === 429) {
      for await (const change of readChanges(connection, { ...filter, after: last, signal })) {
        yield change;
        last = change.Id;
      }
    }
    const backOffMs = Math.min(pauseMs * 2 ** Math.max(0, failures - 1), maxRetryMs);
    await wait(waitOf(backOffMs, cause), signal);
  }
}

/**
 * Runs a task until it succeeds, with a pause after each failure that may pass.
 * @throws {ProblemError} when the service refuses it
 */
export async function untilPassed<T>(task: () => Promise<T>, waiter: Waiter): Promise<T> {
  for (let failures = 0; ; failures++) {
    try {
      return await unlessAborted(task(), waiter.signal);
    } catch (error) {
      await pauseAfter(error, failures, waiter);
    }
  }
}

type Waiter = Pick<StreamOptions, 'signal' | 'onStatus'>;

/**
 * Pauses after a failure that may pass, the longer the more there were.
 * @throws the error otherwise
 */
export async function pauseAfter(
  error: unknown,
  failures: number,
  { signal, onStatus }: Waiter,
): Promise<void> {
  if (signal?.aborted || !mayPass(error)) throw error;

  onStatus('waiting', error);
  await wait(waitOf(Math.min(firstRetryMs * 2 ** failures, maxRetryMs), error), signal);
}

/**
 * Yields the changes after a place that there are now. Ends early, without an error, where the
 * service cannot be reached: the next stream goes on.
 */
async function* readChanges(
  { send, baseUrl }: StreamConnection,
  { signal, ...query }: Pick<StreamOptions, 'after' | 'resource' | 'include' | 'signal'>,
): AsyncGenerator<Change, void> {
  try {
    yield* readPages<Change>({ send, baseUrl, path: '/api/v1/Changes', query, signal });
  } catch (error) {
    if (signal?.aborted || !mayPass(error)) throw error;
  }
}

/**
 * True for an error that the next request may not have: the service is busy or away, or a proxy
 * or the login page of a network has responded in its place. A lost connection is a TypeError.
 */
function mayPass(error: unknown): error is Error {
  if (!(error instanceof ProblemError)) return error instanceof TypeError;

  const { status } = error;
  return status < 300 || status >= 500 || status === 407 || status === 429;
}

/** Returns the wait after an error: the one that the service asks for, if that is longer. */
function waitOf(backOffMs: number, error: Error | undefined): number {
  const asked = error instanceof ProblemError ? error.retryAfter : undefined;
  return asked === undefined ? backOffMs : Math.max(backOffMs, spreadMs(asked * 1_000));
}

/**
 * Returns the stream of a response.
 * @throws {ProblemError} for any other response
 */
async function streamOf(response: Response): Promise<ReadableStream<Uint8Array>> {
  const { ok, headers, body } = response;
  if (ok && body && headers.get('Content-Type')?.startsWith('text/event-stream')) return body;

  throw await problemErrorOf(response);
}

/** The fields of an event. */
type StreamEvent = Partial<Record<'id' | 'event' | 'data' | 'retry', string>>;

/**
 * Yields the complete events of a stream, and an empty one for each comment, which says that the
 * stream is alive.
 * @throws {TypeError} when it is silent for too long
 */
async function* readEvents(
  body: ReadableStream<Uint8Array>,
  signal: AbortSignal | undefined,
): AsyncGenerator<StreamEvent, void> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let text = '';
  let event: StreamEvent = {};

  try {
    for (;;) {
      const { done, value } = await withinSilence(unlessAborted(reader.read(), signal));
      if (done) return;

      text += decoder.decode(value, { stream: true });
      const lines = text.split('\n');
      text = lines.pop() ?? '';

      for (const line of lines) {
        if (line === '') {
          yield event;
          event = {};
        } else if (line.startsWith(':')) {
          yield {};
        } else {
          event = { ...event, ...fieldOf(line) };
        }
      }
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}

function fieldOf(line: string): StreamEvent {
  const [name = '', ...rest] = line.split(': ');
  return { [name]: rest.join(': ') };
}

/** Returns the reason in the last event of a stream. */
function reasonOf(data = '{}'): string {
  return (JSON.parse(data) as { Reason?: string }).Reason ?? '';
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
