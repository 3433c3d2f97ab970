import type { Server } from 'node:http';
import { OperatorError } from '../../log/operator-error.ts';

interface SettingNames {
  readonly host: string;
  readonly port: string;
}

export const managementNames: SettingNames = { host: 'MANAGEMENT_HOST', port: 'MANAGEMENT_PORT' };

/**
 * The length of the queue of connections that the process has not accepted yet: as long as the
 * kernel allows, which cuts it to `net.core.somaxconn` (4,096 since Linux 5.4). With the default
 * of Node, 511, a burst overflows it. The kernel then drops the client's first packet, which is
 * repeated after a second; or only its last one, and the client believes that it is connected
 * to a server that knows nothing of it.
 */
const longestQueue = 0x7fff_ffff;

/**
 * Listens on an address. Port 0: a free one; see `portOf`.
 * @param names of the settings that hold host and port
 * @throws {OperatorError} which names the setting to change
 */
export function listen(
  server: Server,
  port: number,
  host: string,
  names: SettingNames,
): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      reject(listenError(error.code ?? '', port, host, names)),
    );
    server.listen(port, host, longestQueue, resolve);
  });
}

function listenError(code: string, port: number, host: string, names: SettingNames): OperatorError {
  if (code === 'EADDRINUSE') {
    return new OperatorError(
      `port ${port} on ${host} is in use by another process: set ${names.port} to another one`,
    );
  }
  if (code === 'EACCES') {
    return new OperatorError(
      `this login may not listen on port ${port}: set ${names.port} to one above 1023`,
    );
  }

  const remedy = `set ${names.host} to an address of this machine, or to 0.0.0.0 for all of them`;
  return new OperatorError(
    `${host} is not an address that this process can listen on (${code}): ${remedy}`,
  );
}

/**
 * Returns the base of URLs that lead to an address. If the address stands for all addresses,
 * the URLs work on this machine.
 */
export function httpAddress(host: string, port: number): string {
  // A machine without IPv6 may listen on `::`, too, and then answers on its IPv4 addresses
  // only.
  if (host === '::' || host === '0.0.0.0') return `http://127.0.0.1:${port}`;
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Returns the port that a server listens on. */
export function portOf(server: Server): number {
  const address = server.address();
  return typeof address === 'object' && address ? address.port : 0;
}
