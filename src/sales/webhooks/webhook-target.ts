import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import { plainSegments, type TrustedReceiver } from '../../lib/config/trusted-receivers.ts';

/** The receivers that the operator trusts for one tenant. */
export type TrustedReceivers = readonly Pick<TrustedReceiver, 'origin' | 'segments'>[];

const publicPorts = new Set(['', '443', '8443']);
/**
 * The address at which virtual machines of Azure find their host. It is not private by any
 * standard.
 */
const hostOfAzure = '168.63.129.16';
const globalUnicast = ipaddr.parseCIDR('2000::/3');

/** Returns those of all trusted receivers that are meant for a tenant. */
export function receiversOf(
  trusted: readonly TrustedReceiver[],
  tenantGuid: string,
): TrustedReceivers {
  return trusted.filter(receiver => receiver.tenantGuid === tenantGuid);
}

/**
 * Returns why nothing is sent to a URL, to complete "the URL …"; undefined for an allowed one.
 */
export function refusedUrl(text: string, trusted: TrustedReceivers): string | undefined {
  const url = URL.parse(text);
  if (!url || (url.protocol !== 'https:' && url.protocol !== 'http:')) {
    return 'must be an absolute https URL';
  }
  if (/\s/.test(text)) return 'must have no white space';
  if (url.username !== '' || url.password !== '') return 'must have no user name and no password';
  if (url.hash !== '') return 'must have no fragment';
  if (isTrusted(text, trusted)) return undefined;
  if (url.protocol === 'http:') return 'must begin with https://';
  if (!publicPorts.has(url.port)) return 'must have port 443 or 8443';

  const address = addressIn(url);
  if (address === undefined ? !isPublicName(url.hostname) : !isPublicAddress(address)) {
    return 'must have a public address';
  }

  return undefined;
}

/**
 * Ends of names that no public address ever has: RFC 6761, RFC 6762, RFC 8375, and `internal`
 * by ICANN.
 */
const privateNames = /(^|\.)(localhost|local|internal|home\.arpa|invalid)$/;

/**
 * False for a name that only a machine itself or its network knows: `localhost`, or one without
 * a full stop.
 */
function isPublicName(hostname: string): boolean {
  const name = hostname.replace(/\.$/, '').toLowerCase();

  return name.includes('.') && !privateNames.test(name);
}

/**
 * True for a URL whose address is not checked: its scheme, host and port are those of a trusted
 * receiver, and its path begins with the segments of that receiver.
 */
export function isTrusted(text: string, trusted: TrustedReceivers): boolean {
  const segments = plainSegments(text);
  const origin = URL.parse(text)?.origin;

  return (
    segments !== undefined &&
    trusted.some(
      receiver =>
        receiver.origin === origin &&
        receiver.segments.every((segment, index) => segment === segments[index]),
    )
  );
}

/** The address that stands in a URL in place of a name. */
function addressIn({ hostname }: URL): string | undefined {
  const text = hostname.replace(/^\[|\]$/g, '');
  return isIP(text) ? text : undefined;
}

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
