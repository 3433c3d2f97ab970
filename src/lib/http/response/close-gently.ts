import type { ServerResponse } from 'node:http';

/** The time for which the rest of a refused body is received and discarded, in ms. */
const maxRestMs = 3_000;

/**
 * Closes the connection of a response that ends a request before its body has arrived. A
 * connection that is closed with unread bytes is reset, and a client, or a proxy, that still
 * sends then gets the reset in place of the response. So the response ends the direction to the
 * client, and the connection is closed when the client has closed it too, or after three
 * seconds
 * (RFC 9112 §9.6).
 */
export function closeGently(response: ServerResponse): void {
  const { req } = response;
  const { socket } = req;

  // Node calls `destroySoon` when the last response of a connection is sent.
  socket.destroySoon = function endFirst(): void {
    const timer = setTimeout(() => socket.destroy(), maxRestMs);
    socket.once('close', () => clearTimeout(timer));
    socket.end();
    req.resume();
  };
}
