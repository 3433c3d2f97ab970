import type { ServerResponse } from 'node:http';
import type { HttpContext } from '../../request-state.ts';
import { pieceSender, type SendPiece } from './send-piece.ts';
import type { UnsentResponses } from './unsent-responses.ts';

/**
 * The connection of one client that follows a stream of server-sent events (WHATWG HTML, §9.2).
 */
export class EventSink {
  readonly #response: ServerResponse;
  readonly #send: SendPiece;

  constructor(response: ServerResponse, send: SendPiece) {
    this.#response = response;
    this.#send = send;
  }

  /** True once either side has ended the stream. */
  get isClosed(): boolean {
    return this.#response.destroyed || this.#response.writableEnded;
  }

  /**
   * Sends whole events.
   * @returns a promise that resolves when the connection has taken them, or has closed
   */
  async send(events: string): Promise<void> {
    if (!this.isClosed) await this.#send(events);
  }

  /** Sends the last events, and ends the stream. */
  end(events: string): void {
    if (this.isClosed) return;
    void this.#send(events);
    this.#response.end();
  }

  onClose(listener: () => void): void {
    if (this.#response.destroyed) listener();
    else this.#response.once('close', listener);
  }
}

/**
 * The result of a handler that streams events. The stream begins when the head of the response
 * has been sent.
 */
export class EventStream {
  readonly begin: (sink: EventSink) => void;

  constructor(begin: (sink: EventSink) => void) {
    this.begin = begin;
  }
}

declare module '../../request-state.ts' {
  interface RequestState {
    /** When the stream of events began, in ms of `performance.now`. */
    streamsSince: number | undefined;
  }
}

/**
 * Sends the head of a stream, which no proxy must buffer or change, and begins it. The time
 * limits of requests end here: the stream sends events or comments often enough to notice that
 * its client has left. A client that does not read is cut as any other
 * (`Connections.cutSlowReaders`).
 */
export function sendEventStream(
  ctx: HttpContext,
  { begin }: EventStream,
  unsent: UnsentResponses,
): void {
  const { req, res } = ctx;
  res.statusCode = 200;
  res.setHeader('Content-Type', 'text/event-stream; charset=utf-8');
  res.setHeader('Cache-Control', 'no-store, no-transform');
  res.setHeader('X-Accel-Buffering', 'no');
  ctx.respond = false;

  if (ctx.method === 'HEAD') {
    res.end();
    return;
  }

  ctx.state.streamsSince = performance.now();
  req.socket.setTimeout(0); // Node sets the limit again for the next request of the connection
  res.flushHeaders();
  begin(new EventSink(res, pieceSender(ctx, unsent)));
}
