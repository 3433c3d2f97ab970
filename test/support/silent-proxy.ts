import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { joinSockets } from './join-sockets.ts';
import { postgresUrl } from './test-server.ts';

/**
 * A TCP proxy in front of a PostgreSQL server, which can stop passing bytes, like a network
 * that is lost.
 */
export interface SilentProxy {
  /** Returns the URL with the address of the proxy in place of the server's. */
  through(url: string): string;
  /**
   * Passes no more bytes, in either direction, on present and later connections to a database;
   * their sockets stay open.
   * @param matches returns true for the bytes of a packet that is the last one passed; absent:
   *   nothing is passed any more
   */
  silence(database: string, matches?: (packet: Buffer) => boolean): void;
  /**
   * Holds back the first packet to a database that matches, and what follows it on its
   * connection. Other connections go on.
   * @returns a function that passes what was held back; `isHolding` becomes true when a packet
   *   has matched
   */
  hold(
    database: string,
    matches: (packet: Buffer) => boolean,
  ): { release: () => void; readonly isHolding: boolean };
  /**
   * Reads nothing more from the present connections to a database, as when a network stalls:
   * what is sent meanwhile stays in the kernel of its sender.
   * @returns a function that reads on
   */
  stall(database: string): () => void;
  /** Connections to a database that are open. */
  open(database: string): number;
  /** The bytes that have arrived from connections to a database, since the start. */
  received(database: string): number;
  /**
   * Calls `change` with each packet to a database, before it is passed: it may change the bytes
   * in place.
   */
  edit(database: string, change: (packet: Buffer) => void): void;
  /**
   * Runs `work` before each packet to a database is passed, which waits for it.
   * @returns a function that ends this
   */
  beforeEach(database: string, work: (packet: Buffer) => Promise<void>): () => void;
  /** Drops the notifications to a database's connections, or passes them again. */
  dropNotifications(database: string, isDropping: boolean): void;
  /** Connections that were opened to a database, since the start. */
  opened(database: string): number;
  /** Ends all connections. */
  cut(): void;
  close(): Promise<void>;
}

interface Hold {
  readonly matches: (packet: Buffer) => boolean;
  /** Passes the packet that is held back. */
  pass?: () => void;
}

/**
 * Starts a proxy, by default of the suite's PostgreSQL. A connection belongs to the database
 * that its first packet names (no TLS).
 */
export async function startSilentProxy(url = postgresUrl()): Promise<SilentProxy> {
  const silent = new Map<string, (packet: Buffer) => boolean>();
  const opened: string[] = [];
  const clients = new Map<Socket, string>();
  const received = new Map<string, number>();
  const withoutNotifications = new Set<string>();
  const edits = new Map<string, (packet: Buffer) => void>();
  const holds = new Map<string, Hold>();
  const works = new Map<string, (packet: Buffer) => Promise<void>>();
  const sockets = new Set<Socket>();

  const server = createServer(client => {
    const upstream = joinSockets(client, url, sockets);

    let database: string | undefined;
    let isSilent = false;

    client.on('data', packet => {
      if (database === undefined) {
        database = /database\0([^\0]+)\0/.exec(packet.toString('latin1'))?.[1] ?? '';
        opened.push(database);
        clients.set(client, database);
        client.once('close', () => clients.delete(client));
      }
      received.set(database, (received.get(database) ?? 0) + packet.length);

      const isLast = silent.get(database);
      isSilent ||= isLast === nothing;
      if (isSilent) return;
      if (isLast?.(packet)) isSilent = true;
      edits.get(database)?.(packet);

      const work = works.get(database);
      if (work) {
        client.pause();
        void work(packet).finally(() => {
          upstream.write(packet);
          client.resume();
        });
        return;
      }

      const hold = holds.get(database);
      if (hold && !hold.pass && hold.matches(packet)) {
        client.pause();
        hold.pass = () => {
          upstream.write(packet);
          client.resume();
        };
      } else {
        upstream.write(packet);
      }
    });

    const filter = notificationFilter(() => withoutNotifications.has(database ?? ''));
    upstream.on('data', packet => {
      if (!isSilent && silent.get(database ?? '') !== nothing) client.write(filter(packet));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    through: url => Object.assign(new URL(url), { host: address }).href,
    silence: (database, matches = nothing) => void silent.set(database, matches),
    hold: (database, matches) => {
      const hold: Hold = { matches };
      holds.set(database, hold);
      return {
        release: () => {
          holds.delete(database);
          hold.pass?.();
        },
        get isHolding() {
          return hold.pass !== undefined;
        },
      };
    },
    stall: database => {
      const stalled = [...clients].flatMap(([client, name]) => (name === database ? [client] : []));
      for (const client of stalled) client.pause();
      return () => {
        for (const client of stalled) client.resume();
      };
    },
    open: database => [...clients.values()].filter(name => name === database).length,
    received: database => received.get(database) ?? 0,
    edit: (database, change) => void edits.set(database, change),
    beforeEach: (database, work) => {
      works.set(database, work);
      return () => void works.delete(database);
    },
    dropNotifications: (database, isDropping) => {
      if (isDropping) withoutNotifications.add(database);
      else withoutNotifications.delete(database);
    },
    opened: database => opened.filter(each => each === database).length,
    cut: () => {
      for (const socket of sockets) socket.destroy();
    },
    close: async () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function nothing(): boolean {
  return true;
}

/**
 * Returns a function that splits a server's bytes into messages, and leaves out notifications
 * while `isDropping`.
 */
function notificationFilter(isDropping: () => boolean): (bytes: Buffer) => Buffer {
  // PostgreSQL, "Message Formats": a type, then a length that counts itself
  const notification = 'A'.charCodeAt(0);
  let rest = Buffer.alloc(0);
  return bytes => {
    rest = Buffer.concat([rest, bytes]);
    const passed: Buffer[] = [];
    while (rest.length >= 5) {
      const length = 1 + rest.readInt32BE(1);
      if (rest.length < length) break;
      if (rest[0] !== notification || !isDropping()) passed.push(rest.subarray(0, length));
      rest = rest.subarray(length);
    }
    return Buffer.concat(passed);
  };
}
