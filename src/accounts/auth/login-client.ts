import { clientNetwork } from '../../lib/http/request/client-address.ts';
import type { Origin } from '../../tenancy/request-context.ts';

/** The characters of `User-Agent` that are stored. */
const maxUserAgent = 60;

/** Where a login comes from. */
export interface LoginClient {
  /** An IPv4 address, or an IPv6 network of 64 bits. */
  readonly network: string;
  /** The first characters of `User-Agent`; null without the header. */
  readonly userAgent: string | null;
}

/** Returns where the login of a request comes from. */
export function loginClient({ ipAddress, userAgent }: Origin): LoginClient {
  return {
    network: clientNetwork(ipAddress),
    userAgent: userAgent.trim().slice(0, maxUserAgent) || null,
  };
}
