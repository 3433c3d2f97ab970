import type { components } from './api.ts';
import { bodyOf } from './problem-error.ts';
import { writeQuery } from './query.ts';

export type Change = components['schemas']['Change'];

export interface ChangesQuery {
  /** The `Id` of a change, or `now`. Without it, `changes` begins with the oldest change, `followChanges` now. */
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

/**
 * Yields changes as they happen, without end: connects again when the stream was lost, and goes on where it was.
 * @throws {ProblemError} such as `cursor_expired`, or when the caller may no longer read
 */
export async function* followChanges(
  { send, baseUrl }: Connection,
  { after = 'now', ...query }: ChangesQuery,
  signal?: AbortSignal,
): AsyncGenerator<Change, void> {
  for (let last = after, retryMs = minRetryMs; ; ) {
    const address = `${baseUrl}/api/v1/Changes/stream?${writeQuery({ ...query, after: last })}`;
    const headers = { Accept: 'text/event-stream' };
    try {
      const response = await send(new Request(address, { headers, ...(signal && { signal }) }));
      if (response.status !== 429 && response.status < 500) {
        if (!response.ok || !response.body) await bodyOf(response);
        for await (const { id, event, data, retry } of readEvents(response.body as ReadableStream<Uint8Array>)) {
          if (retry !== undefined) retryMs = Number(retry);
          if (data !== undefined && event === undefined) yield JSON.parse(data) as Change;
          if (id !== undefined) last = id;
        }
      }
    } catch (error) {
      if (signal?.aborted || !(error instanceof TypeError)) throw error; // a lost connection is a TypeError
    }
    await new Promise(resolve => setTimeout(resolve, retryMs));
  }
}

/** The fields of an event. */
type StreamEvent = Partial<Record<'id' | 'event' | 'data' | 'retry', string>>;

/** Yields the complete events of a stream. */
async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<StreamEvent, void> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let text = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const events = text.split('\n\n');
      text = events.pop() ?? '';
      for (const event of events)
        yield Object.fromEntries(
          event.split('\n').map(line => {
            const [name = '', ...rest] = line.split(': ');
            return [name, rest.join(': ')];
          }),
        );
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
