import type { IncomingMessage } from 'node:http';
import { type BlockList, isIP, isIPv4 } from 'node:net';

/**
 * Tells the address a request comes from: the socket's, unless the peer is a trusted proxy; then `X-Forwarded-For` is read
 * from the right, past trusted proxies, to the first address that is not one. An entry that is no address ends the walk.
 * Never empty.
 */
export function clientAddresses(trustedProxies: BlockList): (request: IncomingMessage) => string {
  const none = trustedProxies.rules.length === 0;
  return request => {
    let address = plain(request.socket.remoteAddress ?? '');
    if (none || !isTrusted(address, trustedProxies)) return address || 'unknown';
    const forwarded = String(request.headers['x-forwarded-for'] ?? '').split(',');
    for (const entry of forwarded.reverse()) {
      const candidate = plain(entry.trim());
      if (!isIP(candidate) || candidate.includes('%')) break; // a zone means something on the proxy only
      address = candidate;
      if (!isTrusted(address, trustedProxies)) break;
    }
    return address;
  };
}

/**
 * What one client is taken to be: an IPv4 address, or the /64 of an IPv6 address, all of which a single subscriber can
 * use (RFC 6177). Two spellings of one network are one. Text that is no address is given back as it is.
 */
export function clientNetwork(address: string): string {
  if (!address.includes(':')) return address;
  const [ip = ''] = address.split('%');
  if (isIP(ip) !== 6) return address;
  const canonical = new URL(`http://[${ip}]`).hostname.slice(1, -1);
  const [head = '', tail] = canonical.split('::');
  const groups = head.split(':').filter(Boolean);
  if (tail !== undefined) {
    const after = tail.split(':').filter(Boolean);
    groups.push(...Array(8 - groups.length - after.length).fill('0'), ...after);
  }
  return `${groups.slice(0, 4).join(':')}::/64`;
}

/** An IPv4 address mapped into IPv6 (RFC 4291 §2.5.5.2) is written as IPv4. */
function plain(address: string): string {
  if (!address.includes(':')) return address;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  return mapped && isIPv4(mapped) ? mapped : address;
}

function isTrusted(address: string, trustedProxies: BlockList): boolean {
  const version = isIP(address);
  return version !== 0 && trustedProxies.check(address, version === 6 ? 'ipv6' : 'ipv4');
}
