import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { TrustedProxies } from '../../config/config-values.ts';
import { contains, type IpAddress, parseIpAddress } from '../../config/ip-address.ts';
import { problem } from '../../problems.ts';
import { elementsFromRight, parseElement } from './forwarded-elements.ts';
import type { ProxyNotices } from './proxy-notices.ts';

declare module '../../request-state.ts' {
  interface RequestState {
    /** The address of the client, as `clientAddresses` finds it. */
    ipAddress: string;
  }
}

/**
 * Returns a function that finds the client address of a request: the address of the peer,
 * unless the peer is a trusted proxy. The client of a trusted proxy is found in one header,
 * `X-Forwarded-For` or `Forwarded` (`TRUSTED_HEADER`), from the right, because each proxy adds
 * an element there and the client may have written whatever is to the left:
 *
 * - With `TRUSTED_HOPS`, it is the element with that number from the right. Nothing to its left
 *   is read, so a client whose own address is in a trusted network cannot choose another one.
 * - Without, it is the rightmost address that is not itself a trusted proxy, or the leftmost
 *   one if all are trusted; an element that is not an address ends the search.
 *
 * When nothing is found, the address is the peer's.
 *
 * A peer on a Unix socket has no address. It is trusted if `TRUSTED_PROXIES` contains `unix`.
 * If it is not trusted, or forwards no address, its connection gets a random name (`unix-…`),
 * so that each connection is counted by itself.
 *
 * The function throws `invalid_request` when a TCP client has reset its connection and so has
 * no address any more: no response can reach that client, and without an address it could
 * exceed every rate limit.
 */
export function clientAddresses(
  { networks, unixSocket, hops, header }: TrustedProxies,
  notices: ProxyNotices,
): (request: IncomingMessage) => string {
  const otherHeader = header === 'forwarded' ? 'x-forwarded-for' : 'forwarded';
  const isTrusted = (address: IpAddress): boolean =>
    networks.some(network => contains(network, address));
  const connectionNames = new WeakMap<Socket, string>();

  function unixPeer(socket: Socket): string {
    const name = connectionNames.get(socket) ?? `unix-${randomBytes(9).toString('base64url')}`;
    connectionNames.set(socket, name);
    return name;
  }

  /**
   * Returns the client of a trusted proxy; undefined when the proxy forwards no address where
   * it is expected.
   */
  function forwardedAddress(headers: IncomingMessage['headers'], peer: string): string | undefined {
    const list = headers[header];
    if (list === undefined) {
      if (headers[otherHeader] !== undefined) notices.otherHeader(peer);
      return undefined;
    }

    let found: IpAddress | undefined;
    let place = 0;
    for (const element of elementsFromRight(String(list))) {
      place++;
      if (hops !== undefined && place < hops) continue;

      const address = parseElement(header, element);
      if (!address) notices.unreadable(peer, element);
      if (hops !== undefined) return address?.toString();
      if (!address) break;

      found = address;
      if (!isTrusted(address)) break;
    }
    if (hops !== undefined) notices.fewElements(peer);

    return found?.toString();
  }

  return function clientAddress({ socket, headers }) {
    const { remoteAddress } = socket;
    if (remoteAddress === undefined) {
      // A reset TCP socket still has a local address until it is destroyed; a Unix socket never
      // has one.
      if (socket.localAddress !== undefined || socket.destroyed) {
        throw problem('invalid_request', { detail: 'The connection has been reset.' });
      }
      return (unixSocket && forwardedAddress(headers, 'unix')) || unixPeer(socket);
    }

    const isForwarded = headers[header] !== undefined;
    // IPv4 has one spelling
    if (networks.length === 0 && !isForwarded && !remoteAddress.includes(':')) {
      return remoteAddress;
    }

    const [ip = '', zone] = remoteAddress.split('%');
    const peer = parseIpAddress(ip);
    if (!peer) return remoteAddress;

    const peerAddress = zone ? remoteAddress : peer.toString();
    if (isTrusted(peer)) return forwardedAddress(headers, peerAddress) ?? peerAddress;

    if (isForwarded) notices.untrusted(peer);
    return peerAddress;
  };
}

/**
 * Returns the network that an address belongs to, by which clients are distinguished: an IPv4
 * address itself, or the IPv6 network of `bits` bits. All spellings of a network have the same
 * text. Text that is not an address is its own network.
 * @param bits default: 64, because a single subscriber can use all addresses of a /64 (RFC
 *   6177)
 */
export function clientNetwork(address: string, bits: 64 | 56 | 48 = 64): string {
  if (!address.includes(':')) return address;
  const [ip = ''] = address.split('%');
  const parsed = parseIpAddress(ip);
  if (!parsed) return address;
  if (!('parts' in parsed)) return parsed.toString();
  const [first = 0, second = 0, third = 0, fourth = 0] = parsed.parts;
  const parts = [first, second, third, fourth & (0xffff << (64 - bits))];
  return `${parts.map(part => part.toString(16)).join(':')}::/${bits}`;
}

/**
 * A network in which an address is counted, and the factor by which its rate exceeds that of a
 * single client.
 */
export interface CountedNetwork {
  readonly network: string;
  readonly factor: number;
}

/**
 * Returns the networks in which requests from an address are counted, the smallest first. A
 * subscriber may have a whole /56 or /48 (RFC 6177), which are 256 and 65,536 networks of 64
 * bits: these networks are counted as well, with 4 and 16 times the rate.
 */
export function countedNetworks(address: string): [CountedNetwork, ...CountedNetwork[]] {
  const network = clientNetwork(address);
  const smallest = { network, factor: 1 };
  if (!network.endsWith('::/64')) return [smallest];
  return [
    smallest,
    { network: clientNetwork(address, 56), factor: 4 },
    { network: clientNetwork(address, 48), factor: 16 },
  ];
}
