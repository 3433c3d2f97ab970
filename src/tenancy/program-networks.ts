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
