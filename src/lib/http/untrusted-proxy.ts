import type { IncomingMessage } from 'node:http';
import type { Logger } from 'pino';
import { isInternal, parseIpAddress } from '../config/ip-address.ts';

/**
 * Returns a function that looks for a proxy that is missing in `TRUSTED_PROXIES`, behind which
 * all clients count as one: a peer with an internal address that sends `X-Forwarded-For`. It
 * logs the first one of the process only.
 */
export function noticeUntrustedProxy(
  log: Logger,
): (request: IncomingMessage, clientAddress: string) => void {
  let hasWarned = false;
  return ({ socket, headers }, clientAddress) => {
    if (hasWarned || headers['x-forwarded-for'] === undefined) return;
    const peer = parseIpAddress(socket.remoteAddress ?? '');
    // Behind a trusted proxy, the client address is that of the client.
    if (!peer || peer.toString() !== clientAddress || !isInternal(peer)) return;
    hasWarned = true;
    log.warn(
      { event: 'untrusted_proxy', peer: clientAddress },
      'a request with X-Forwarded-For came from an internal address: if it is a proxy, add it ' +
        'to TRUSTED_PROXIES',
    );
  };
}
