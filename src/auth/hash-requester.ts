import { clientNetwork } from '../http/client-address.ts';
import type { RequestContext } from '../tenancy/request-context.ts';
import type { HashRequester } from './hash-queue.ts';

/**
 * Prefix length of an IPv6 client's network: a subscriber often has a whole /56 (RFC 6177), which counts as one client.
 */
const networkBits = 56;

/** Returns the place of a request in the queue of password hashes. */
export function hashRequester(context: RequestContext): HashRequester {
  const { tenant, origin } = context;
  return {
    tenant: tenant.guid,
    network: clientNetwork(origin.ipAddress, networkBits),
    clientLeft: context.clientLeft(),
    deadline: context.deadline,
  };
}
