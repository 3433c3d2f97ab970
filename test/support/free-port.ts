import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * The range of ports: below those that systems give to outgoing connections, one of which could
 * take the port before it is used.
 */
const [firstPort, lastPort] = [20_000, 32_000];

/**
 * Returns a loopback port that was free at the time of the call, and that no outgoing
 * connection takes afterwards.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(firstPort, lastPort);
    const server = createServer().listen(port, '127.0.0.1');
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    if (!isFree) continue;

    server.close();
    await once(server, 'close');
    return port;
  }
}
