import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';

/** A TCP server that accepts connections, and neither reads nor sends anything. */
export interface SilentServer {
  readonly port: number;
  /** The number of connections that it has accepted. */
  readonly accepted: number;
  /** Ends all connections. */
  close(): Promise<void>;
}

export async function startSilentServer(): Promise<SilentServer> {
  const sockets = new Set<Socket>();
  const server = createServer(socket => sockets.add(socket.on('error', () => {})));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');

  return {
    port: (server.address() as AddressInfo).port,
    get accepted() {
      return sockets.size;
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}
