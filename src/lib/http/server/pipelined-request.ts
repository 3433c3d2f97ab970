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
 * A request whose parser can be stopped. Node parses all bytes that it has received in one
 * piece, and stops only after a request that changes the protocol, because the bytes behind it
 * are not HTTP. So the first request beyond the maximum claims to be such an upgrade, and a
 * server that accepts no upgrades destroys its connection. A version of Node that does not read
 * `upgrade` would parse the rest of the piece, and `Connections` would destroy the connection.
 */
export class PipelinedRequest extends IncomingMessage {
  constructor(socket: Socket) {
    super(socket);
    if (stopped.has(socket)) {
      Object.defineProperty(this, 'upgrade', { get: () => true, set: () => {} });
    }
  }
}
