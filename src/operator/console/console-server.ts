import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

const maxConnections = 200;
/** Times in milliseconds. A form is small, and the browser is near. */
const limits = {
  ...{ headersTimeout: 5_000, requestTimeout: 15_000, keepAliveTimeout: 5_000, connectionsCheckingInterval: 1_000 },
  maxHeaderSize: 16_384,
};

/**
 * Creates the server of the console. With more than `maxConnections` connections, the oldest one closes that has sent no
 * request of somebody known, so that a flood of connections shuts nobody out.
 */
export function createConsoleServer(
  handle: (request: IncomingMessage, response: ServerResponse) => unknown,
  isKnown: (request: IncomingMessage) => boolean,
): Server {
  const strangers = new Set<Socket>();
  const known = new Set<Socket>();
  const server = createServer(limits, (request, response) => {
    if (strangers.has(request.socket) && isKnown(request)) {
      strangers.delete(request.socket);
      known.add(request.socket);
    }
    handle(request, response);
  });
  server.on('connection', socket => {
    strangers.add(socket);
    socket.once('close', () => [strangers, known].map(each => each.delete(socket)));
    const [oldest] = strangers.size > 1 ? strangers : known;
    if (strangers.size + known.size > maxConnections) oldest?.destroy();
  });
  return server;
}
