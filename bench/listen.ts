import type { Server } from 'node:http';

/**
 * Listens on a free loopback port and prints `listening <port>`. Ends the process at once on
 * SIGTERM.
 */
export function listen(server: Server): void {
  server.keepAliveTimeout = 60_000; // the load generator pauses between rounds
  server.listen(0, '127.0.0.1', () => {
    const address = server.address();
    if (typeof address === 'object' && address) console.log(`listening ${address.port}`);
  });
  process.on('SIGTERM', () => process.exit(0));
}
