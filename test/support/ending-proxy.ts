import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { joinSockets } from './join-sockets.ts';

/** A TCP proxy in front of a PostgreSQL server, which ends as a server that stops. */
export interface EndingProxy {
  /** Returns the URL with the address of the proxy in place of the server's. */
  through(url: string): string;
  /** The packets that it has passed, in both directions, since `endAfter`. */
  readonly passed: number;
  /**
   * Ends all connections when it has passed this number of packets.
   * @param refusing true: it accepts no later connection either, until `endAfter` is called
   */
  endAfter(packets: number, refusing: boolean): Promise<void>;
  /** Ends all connections now. */
  end(): void;
  close(): Promise<void>;
}

/** @param url of the server */
export async function startEndingProxy(url: string): Promise<EndingProxy> {
  const sockets = new Set<Socket>();
  let end = { after: Number.POSITIVE_INFINITY, refusing: false };
  let passed = 0;

  const endAll = (): void => {
    for (const socket of sockets) {
      socket.destroy();
    }
  };

  const pass = (packet: Buffer, to: Socket): void => {
    if (++passed !== end.after) {
      to.write(packet);
      return;
    }

    if (end.refusing) server.close();
    endAll();
  };

  const server = createServer(client => {
    const upstream = joinSockets(client, url, sockets);
    client.on('data', packet => pass(packet, upstream));
    upstream.on('data', packet => pass(packet, client));
  });
  const listen = (at: number) => once(server.listen(at, '127.0.0.1'), 'listening');

  await listen(0);
  const own = (server.address() as AddressInfo).port;

  return {
    through: address => Object.assign(new URL(address), { host: `127.0.0.1:${own}` }).href,
    get passed() {
      return passed;
    },
    endAfter: async (packets, refusing) => {
      passed = 0;
      end = { after: packets, refusing };
      if (!server.listening) await listen(own);
    },
    end: endAll,
    close: async () => {
      endAll();
      server.close();
    },
  };
}
