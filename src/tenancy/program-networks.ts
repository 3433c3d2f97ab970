import {
  contains,
  type IpNetwork,
  parseIpAddress,
  parseIpNetwork,
} from '../lib/config/ip-address.ts';

/**
 * Parses networks that the control database has, in CIDR notation.
 * @throws when one of them is none: without it, a program could be admitted from everywhere
 */
export function parseNetworks(networks: readonly string[]): IpNetwork[] {
  return networks.map(text => {
    const network = parseIpNetwork(text);
    if (!network) throw new Error(`a program has a network that is none: ${text}`);
    return network;
  });
}

/**
 * True if requests of a client may use the keys of a program with these networks: it has none,
 * or one of them has the address of the client.
 * @param address as `RequestState.ipAddress` has it; a text that is none is in no network
 */
export function isAdmitted(networks: readonly IpNetwork[], address: string | undefined): boolean {
  if (networks.length === 0) return true;
  const client = parseIpAddress(address ?? '');

  return client !== undefined && networks.some(network => contains(network, client));
}

/**
 * Returns an address, or a network in CIDR notation, in its one spelling; undefined for another
 * text, and for a network with bits behind its prefix, which may be meant as an address.
 */
export function networkText(text: string): string | undefined {
  const network = parseIpNetwork(text);
  if (!network) return undefined;

  const { address, bits } = network;
  const bytes = address.toByteArray();
  const hasNoHost = bytes.every((byte, index) => {
    const hostBits = Math.min(8, Math.max(0, 8 * (index + 1) - bits));
    return (byte & (2 ** hostBits - 1)) === 0;
  });

  return hasNoHost ? `${address}/${bits}` : undefined;
}
