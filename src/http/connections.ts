import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

interface ConnectionState {
  /** The response to the newest request. */
  response?: ServerResponse;
  /** Start of the current period with unsent bytes, by `performance.now()`; undefined when all bytes are sent. */
  sendingSince?: number | undefined;
  /** Bytes received up to the last call of `closeIdle`. */
  bytesRead: number;
}

/** The open connections of an HTTP server. Detects slow and idle ones, which Node does not distinguish well enough. */
export class Connections {
  readonly #states = new Map<Socket, ConnectionState>();

  add(socket: Socket): void {
    this.#states.set(socket, { bytesRead: 0 });
    socket.once('close', () => this.#states.delete(socket));
  }

  onRequest(response: ServerResponse): void {
    const state = response.socket && this.#states.get(response.socket);
    if (state) state.response = response;
  }

  /**
   * Resets connections that have had unsent bytes for longer than `maxMs`, even if the client reads a few bytes now and
   * then. Without a reset, the kernel would continue to send what it has buffered.
   */
  cutSlowReaders(now: number, maxMs: number): void {
    for (const [socket, state] of this.#states) {
      if (socket.writableLength === 0) state.sendingSince = undefined;
      else state.sendingSince ??= now;
      if (state.sendingSince !== undefined && now - state.sendingSince > maxMs) socket.resetAndDestroy();
    }
  }

  /**
   * Destroys the connections that neither send nor receive anything. Node's own `closeIdleConnections` also destroys
   * those whose response was passed to the socket but is not completely sent.
   */
  closeIdle(): void {
    for (const [socket, state] of this.#states) {
      const isReceiving = socket.bytesRead !== state.bytesRead;
      state.bytesRead = socket.bytesRead;
      const isAnswered = !state.response || state.response.writableFinished;
      if (isAnswered && !isReceiving && socket.writableLength === 0) socket.destroy();
    }
  }
}
