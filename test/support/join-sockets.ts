import { connect, type Socket } from 'node:net';

/**
 * Connects a client of a proxy to the server behind it. When one of the two sockets closes, the
 * other does; both are in `sockets` until then. The proxy passes the data on.
 * @param url of the server
 * @returns the socket to the server
 */
export function joinSockets(client: Socket, url: string, sockets: Set<Socket>): Socket {
  const { hostname, port } = new URL(url);
  const upstream = connect(Number(port), hostname);

  for (const [socket, other] of [
    [client, upstream],
    [upstream, client],
  ] as const) {
    sockets.add(socket);
    socket.setNoDelay(true);
    socket.on('error', () => {});
    socket.on('close', () => {
      sockets.delete(socket);
      other.destroy();
    });
  }

  return upstream;
}
