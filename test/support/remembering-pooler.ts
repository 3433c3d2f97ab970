import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { joinSockets } from './join-sockets.ts';

/** A pooler in session mode in front of a PostgreSQL server. */
export interface RememberingPooler {
  /** Returns the URL with the address of the pooler in place of the server's. */
  through(url: string): string;
  close(): Promise<void>;
}

/** PostgreSQL, "Message Formats": the type of the message that ends a login and a query. */
const readyForQuery = 'Z'.charCodeAt(0);

/**
 * Starts a pooler that sets each session before it gives it to a client, as PgBouncer 1.26 does
 * with the values that it has seen in the first session of a database (no TLS).
 * @param statements of SQL that set a session
 */
export async function startRememberingPooler(
  serverUrl: string,
  statements: string,
): Promise<RememberingPooler> {
  const sockets = new Set<Socket>();

  const server = createServer(client => {
    const upstream = joinSockets(client, serverUrl, sockets);

    client.on('data', packet => upstream.write(packet));

    let rest = Buffer.alloc(0);
    let state: 'logging in' | 'setting' | 'given' = 'logging in';

    upstream.on('data', packet => {
      if (state === 'given') {
        client.write(packet);
        return;
      }

      rest = Buffer.concat([rest, packet]);
      while (rest.length >= 5) {
        const length = 1 + rest.readInt32BE(1);
        if (rest.length < length) break;
        const message = rest.subarray(0, length);
        rest = rest.subarray(length);

        if (message[0] === readyForQuery && state === 'logging in') {
          state = 'setting';
          upstream.write(queryMessage(statements));
        } else if (message[0] === readyForQuery) {
          state = 'given';
          client.write(Buffer.concat([message, rest]));
          break;
        } else if (state === 'logging in') {
          client.write(message);
        }
      }
    });
  });

  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;

  return {
    through: url => Object.assign(new URL(url), { host: address }).href,
    close: async () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function queryMessage(statements: string): Buffer {
  const text = Buffer.from(`${statements}\0`);
  const head = Buffer.alloc(5);
  head.write('Q');
  head.writeInt32BE(4 + text.length, 1);

  return Buffer.concat([head, text]);
}
