import type { Server } from 'node:http';

/** Listens on a free port of the loopback and tells which: `listening <port>`. Ends at once when told to. */
export function listening(server: Server): void {
  server.keepAliveTimeout = 60_000; // the load maker pauses between rounds
  server.listen(0, '127.0.0.1', () => {
    const address = server.address();
    if (typeof address === 'object' && address) console.log(`listening ${address.port}`);
  });
  process.on('SIGTERM', () => process.exit(0));
}
