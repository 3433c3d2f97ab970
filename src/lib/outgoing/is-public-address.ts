import ipaddr from 'ipaddr.js';

/**
 * The address at which virtual machines of Azure find their host. It is not private by any
 * standard.
 */
const hostOfAzure = '168.63.129.16';
const globalUnicast = ipaddr.parseCIDR('2000::/3');

/**
 * True for an address of the public internet. False for private, loopback, link-local (and with
 * that metadata services), shared (CGNAT), multicast, reserved and unspecified ones, and for
 * those of IPv4 within IPv6 (mapped, NAT64, 6to4).
 */
export function isPublicAddress(text: string): boolean {
  if (!ipaddr.isValid(text) || text === hostOfAzure) return false;
  const address = ipaddr.parse(text);
  if (address.range() !== 'unicast') return false;
  return !(address instanceof ipaddr.IPv6) || address.match(globalUnicast);
}
