import type { Server } from 'node:net';

/** Node has no public way to name the file descriptor of a server that listens. */
export function descriptorOf(server: Server): number {
  const { _handle: handle } = server as Server & { _handle?: { fd?: number } };
  if (handle?.fd === undefined || handle.fd < 0) {
    throw new Error('the socket has no file descriptor');
  }
  return handle.fd;
}
