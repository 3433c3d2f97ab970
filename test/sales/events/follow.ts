import type { Client } from '../../support/client.ts';

/** An event of a stream. */
interface StreamEvent {
  id?: string;
  event?: string;
  retry?: string;
  comment?: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert what the service has sent
  data?: any;
}

/** A stream of events that is being read. */
export interface Following {
  readonly status: number;
  readonly headers: Headers;
  /** The body of a response that is no stream. */
  readonly problem: { code?: string } | undefined;
  /** Waits for the next event that has data; undefined when the stream has ended. */
  next(): Promise<StreamEvent | undefined>;
  /** The id of the last event, with or without data. */
  readonly lastId: string | undefined;
  /** The part that was received of an event that is not complete. */
  readonly rest: string;
  close(): void;
}

/** Follows the stream of changes as a user. */
export async function follow(
  client: Client,
  query = '',
  headers: Record<string, string> = {},
): Promise<Following> {
  const abort = new AbortController();
  const response = await fetch(`${client.url}/api/v1/Changes/stream${query}`, {
    headers: {
      Authorization: `Bearer ${client.tokens?.accessToken}`,
      Accept: 'text/event-stream',
      ...headers,
    },
    signal: abort.signal,
  });

  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') ?? false;
  const problem = isStream ? undefined : ((await response.json()) as { code?: string });
  const reader = problem
    ? undefined
    : response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let lastId: string | undefined;

  return {
    status: response.status,
    headers: response.headers,
    problem,
    get lastId() {
      return lastId;
    },
    get rest() {
      return rest;
    },
    close: () => abort.abort(),
    async next() {
      for (;;) {
        const end = rest.indexOf('\n\n');
        if (end >= 0) {
          const event = parse(rest.slice(0, end));
          rest = rest.slice(end + 2);
          lastId = event.id ?? lastId;
          if (event.data !== undefined) return event;
          continue;
        }

        const { done, value = '' } = (await reader?.read()) ?? { done: true };
        if (done) return undefined;
        rest += value;
      }
    },
  };
}

function parse(text: string): StreamEvent {
  const fields = text.split('\n').map(line => /^(\w*): ?(.*)$/.exec(line) ?? ['', '', '']);
  const event = Object.fromEntries(
    fields.map(([, name, value]) => [name || 'comment', value]),
  ) as StreamEvent;
  return event.data === undefined ? event : { ...event, data: JSON.parse(event.data) };
}
