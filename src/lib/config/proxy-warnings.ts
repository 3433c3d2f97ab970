import type { Config } from './config.ts';

/**
 * The longest prefix of a network that is probably more than the proxies: it has clients, too.
 */
const maxWideBits = { ipv4: 23, ipv6: 63 } as const;

/**
 * Returns the trusted networks wider than /24 (IPv4) or /64 (IPv6), without `TRUSTED_HOPS`: a
 * client with an address in one counts as a proxy, so that its own text is its address.
 */
export function wideNetworks({
  trustedProxies: { networks, hops },
}: Pick<Config, 'trustedProxies'>): string[] {
  if (hops !== undefined) return [];

  return networks
    .filter(({ address, bits }) => bits <= maxWideBits[address.kind()])
    .map(({ address, bits }) => `${address}/${bits}`);
}

/**
 * Returns a sentence when wide networks are trusted (`wideNetworks`), and one when the header
 * of trusted proxies is named and no proxy is trusted.
 */
export function proxyWarnings(config: Config): string[] {
  const { networks, unixSocket, header } = config.trustedProxies;
  if (networks.length === 0 && !unixSocket && header === 'forwarded') {
    return [
      'TRUSTED_HEADER has no effect without TRUSTED_PROXIES, which names the peers whose header is read.',
    ];
  }

  const wide = wideNetworks(config);
  if (wide.length === 0) return [];

  return [
    `TRUSTED_PROXIES has ${wide.join(' and ')}, and TRUSTED_HOPS is not set: a client with an address in there ` +
      'may choose the address that it counts as. Set TRUSTED_HOPS to the number of proxies on every way to the service.',
  ];
}
