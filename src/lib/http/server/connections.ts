import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { isUploading } from '../request/read-upload.ts';
import { allowParsing, stopParsing } from './pipelined-request.ts';

/**
 * Maximum requests that wait on a connection; with more, it is destroyed. Clients that use
 * pipelines send a few requests at once.
 */
const maxWaiting = 20;

interface ConnectionState {
  /**
   * The responses in the order of their requests; several if the client sends requests in a
   * pipeline. Those that are completely sent are removed at the next request.
   */
  readonly responses: ServerResponse[];
  /** The number of requests that wait for the responses before theirs. */
  waiting: number;
  /**
   * True when the last of the responses closes the connection: further requests are not
   * started.
   */
  isClosing: boolean;
  /**
   * Start of the current period with unsent bytes, by `performance.now()`, and all bytes
   * written before it. It ends when they are sent. Undefined when all bytes are sent.
   */
  sending?: { readonly since: number; readonly bytes: number } | undefined;
  /**
   * Bytes received up to the last call of `closeIdle`; -1 before the first: received bytes may
   * not have been read yet.
   */
  bytesRead: number;
  /** The first call of `closeIdle` since the last response was sent. */
  unusedSince?: number | undefined;
}

/**
 * The open connections of an HTTP server. Detects slow and idle ones, which Node does not
 * distinguish well enough.
 */
export class Connections {
  readonly #states = new Map<Socket, ConnectionState>();
  #isStopping = false;

  add(socket: Socket): void {
    const state: ConnectionState = { responses: [], waiting: 0, isClosing: false, bytesRead: -1 };
    this.#states.set(socket, state);
    socket.once('close', () => this.#states.delete(socket));
    // Node resumes a connection when it has discarded the body of a request.
    socket.on('resume', () => {
      if (state.waiting > 0 || state.isClosing) stopReading(socket);
    });
  }

  /**
   * Starts the requests of a connection one after the other. While some wait, the connection is
   * not read: Node would otherwise start all that a client sends. It still parses the bytes
   * that it has read, up to 64 KiB, which may be 2,500 requests; so too many waiting requests
   * end the connection.
   */
  onRequest({ socket }: IncomingMessage, response: ServerResponse, start: () => void): void {
    // a response has no socket while an earlier one is being sent
    const state = this.#states.get(socket);
    if (!state || state.isClosing || !socket.writable) return;

    const { responses } = state;
    while (responses[0]?.writableFinished) responses.shift();
    const previous = responses.at(-1);
    responses.push(response);

    if (this.#isStopping) {
      if (previous && !previous.headersSent) previous.removeHeader('Connection');
      response.setHeader('Connection', 'close');
    }

    if (!previous) {
      start();
      return;
    }

    if (state.waiting === maxWaiting) {
      socket.destroy();
      return;
    }

    state.waiting++;
    if (state.waiting === maxWaiting) stopParsing(socket);
    stopReading(socket);

    previous.once('finish', () => {
      if (!socket.writable) return; // the previous response has closed the connection
      if (state.waiting === maxWaiting) allowParsing(socket);
      state.waiting--;
      if (state.waiting === 0 && !state.isClosing) socket.resume();
      start();
    });
  }

  /**
   * Closes a connection after the responses to the requests that it has sent completely.
   * @returns false when there is none to wait for
   */
  closeAfterRequests(socket: Socket): boolean {
    const state = this.#states.get(socket);
    const last = state?.responses.at(-1);
    if (!state || !last || last.writableFinished || !last.req.complete) return false;
    state.isClosing = true;
    stopReading(socket);
    if (!last.headersSent) last.setHeader('Connection', 'close');
    else last.once('finish', () => socket.destroySoon());
    return true;
  }

  /**
   * True from the head of a response until the response is sent and its request has arrived
   * completely: no second response may follow meanwhile.
   */
  isAnswering(socket: Socket): boolean {
    const responses = this.#states.get(socket)?.responses ?? [];
    return responses.some(
      ({ headersSent, writableFinished, req }) =>
        headersSent && !(writableFinished && req.complete),
    );
  }

  /**
   * True while the body of an upload arrives on a connection, which `readUpload` limits by its
   * progress.
   */
  isUploading(socket: Socket): boolean {
    const last = this.#states.get(socket)?.responses.at(-1);
    return last !== undefined && isUploading(last.req);
  }

  /**
   * Closes each connection after its last response: otherwise it would stay open until its
   * client or a time limit closes it. An earlier response of a pipeline does not get the
   * header, because Node would not send the later ones.
   */
  closeAfterResponses(): void {
    this.#isStopping = true;
    for (const { responses } of this.#states.values()) {
      const last = responses.at(-1);
      if (last && !last.headersSent) last.setHeader('Connection', 'close');
    }
  }

  /**
   * Resets connections on which bytes are unsent for longer than `maxMs`, even if the client
   * reads a few bytes now and then. Without a reset, the kernel would continue to send what it
   * has buffered. A stream or an export goes on while each piece is taken in time.
   */
  cutSlowReaders(now: number, maxMs: number): void {
    for (const [socket, state] of this.#states) {
      const { bytesWritten, writableLength } = socket;
      if (writableLength === 0) {
        state.sending = undefined;
        continue;
      }

      const { sending } = state;
      if (!sending || bytesWritten - writableLength >= sending.bytes) {
        state.sending = { since: now, bytes: bytesWritten };
      } else if (now - sending.since > maxMs) {
        socket.resetAndDestroy();
      }
    }
  }

  /**
   * Destroys the connections without an unfinished response that have received nothing since
   * the last call, or that have received the head of a request for longer than `maxHeadMs`,
   * however steadily it arrives. Node's own `closeIdleConnections` also destroys those whose
   * response was passed to the socket but is not completely sent; and its own check of heads
   * does not see empty lines before a request.
   */
  closeIdle(now: number, maxHeadMs: number): void {
    for (const [socket, state] of this.#states) {
      const isReceiving = socket.bytesRead !== state.bytesRead;
      state.bytesRead = socket.bytesRead;
      const isAnswered = state.responses.every(({ writableFinished }) => writableFinished);
      if (!isAnswered || socket.writableLength > 0) {
        state.unusedSince = undefined;
        continue;
      }
      state.unusedSince ??= now;
      if (!isReceiving || now - state.unusedSince > maxHeadMs) socket.destroy();
    }
  }
}

/**
 * Pauses a connection, and emits the event at which Node's parser stops reading: `pause` emits
 * none on a connection that is paused already.
 */
function stopReading(socket: Socket): void {
  if (socket.isPaused()) socket.emit('pause');
  else socket.pause();
}
