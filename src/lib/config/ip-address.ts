import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

/**
 * An IPv4 or IPv6 address. An IPv4 address mapped into IPv6 (RFC 4291 §2.5.5.2) is always the
 * IPv4 address.
 */
export type IpAddress = ipaddr.IPv4 | ipaddr.IPv6;

/** All addresses that begin with the first `bits` bits of `address`. */
export interface IpNetwork {
  readonly address: IpAddress;
  readonly bits: number;
}

/**
 * Parses an address in any spelling: `1.2.3.4`, `::ffff:1.2.3.4` and `::ffff:102:304` are the
 * same address. Returns undefined for all other text, also for an address with a zone
 * (`fe80::1%eth0`): only the machine that wrote it knows the zone.
 *
 * `isIP` comes first, because ipaddr.js also accepts octal, hexadecimal and shortened IPv4
 * addresses.
 */
export function parseIpAddress(text: string): IpAddress | undefined {
  const version = isIP(text);
  if (version === 4) return ipaddr.IPv4.parse(text);
  if (version === 0 || text.includes('%')) return undefined;
  // ipaddr.js reads `::1.2.3.4` (RFC 4291 §2.5.5.1) as the mapped address `::ffff:1.2.3.4`, but
  // not `0::1.2.3.4`.
  const address = ipaddr.IPv6.parse(text.replace(/^::(?=\d+\.)/, '0::'));
  return address.isIPv4MappedAddress() ? address.toIPv4Address() : address;
}

/**
 * Parses an address (a network of one) or a network in CIDR notation (`10.0.0.0/8`); undefined
 * for all other text.
 */
export function parseIpNetwork(text: string): IpNetwork | undefined {
  const [, start = '', prefix] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const address = parseIpAddress(start);
  if (!address) return undefined;
  const maxBits = address.kind() === 'ipv4' ? 32 : 128;
  // The prefix of a mapped network also counts the 96 bits before the IPv4 address.
  const bits =
    prefix === undefined ? maxBits : Number(prefix) - (start.includes(':') ? 128 - maxBits : 0);
  return bits >= 0 && bits <= maxBits ? { address, bits } : undefined;
}

export function contains({ address, bits }: IpNetwork, candidate: IpAddress): boolean {
  return address.kind() === candidate.kind() && candidate.match(address, bits);
}

const internalRanges = new Set([
  'private',
  'loopback',
  'linkLocal',
  'uniqueLocal',
  'carrierGradeNat',
]);

/**
 * True for an address that no client on the internet has: one of a private network (RFC 1918,
 * 4193, 6598) or of this machine.
 */
export function isInternal(address: IpAddress): boolean {
  return internalRanges.has(address.range());
}
