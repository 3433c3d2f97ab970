import { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

const stopped = new WeakSet<Socket>();

/**
 * Makes the next request of a connection end it, so that the bytes after that request are not
 * parsed.
 */
export function stopParsing(socket: Socket): void {
  stopped.add(socket);
}

/** Undoes `stopParsing`. */
export function allowParsing(socket: Socket): void {
  stopped.delete(socket);
}

/**
 * A request, as Node makes it. Node parses to the end what it has received in one piece, and
 * has no way to stop, except after a request that changes the protocol: the bytes behind it are
 * not HTTP. So the first request that is too many claims to be one. A server that accepts no
 * upgrades destroys its connection. Where a version of Node should not read `upgrade`, it
 * parses the rest of the piece, and `Connections` destroys the connection.
 */
export class PipelinedRequest extends IncomingMessage {
  constructor(socket: Socket) {
    super(socket);
    if (stopped.has(socket)) {
      Object.defineProperty(this, 'upgrade', { get: () => true, set: () => {} });
    }
  }
}
