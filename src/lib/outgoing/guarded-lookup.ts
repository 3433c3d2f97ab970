import type { LookupAddress } from 'node:dns';
import { lookup, Resolver } from 'node:dns/promises';
import type { LookupFunction } from 'node:net';
import { isPublicAddress } from './is-public-address.ts';

/** Resolves a name to all its addresses. */
type Resolve = (name: string) => Promise<LookupAddress[]>;

/** The name of a target leads to an address that nothing is sent to. */
export class RefusedAddressError extends Error {
  readonly code = 'REFUSED_ADDRESS';
}

/** Replacements for tests, which have neither public names nor public addresses. */
export interface GuardOptions {
  readonly resolve?: Resolve | undefined;
  /** True for an address that tenants may choose. */
  readonly isAllowed?: ((address: string) => boolean) | undefined;
}

/**
 * Returns the look-up of a connection to a target that a tenant chooses. A name is resolved once
 * for each connection, all of its addresses are checked, and the connection is made to one of
 * these.
 */
export function guardedLookup({ resolve, isAllowed }: GuardOptions = {}): LookupFunction {
  return lookupOf(resolve ?? resolvePublic, isAllowed ?? isPublicAddress);
}

/** Returns the look-up of a connection to a target that the operator allows, at any address. */
export function trustedLookup({ resolve }: GuardOptions = {}): LookupFunction {
  return lookupOf(resolve ?? resolveTrusted, () => true);
}

/**
 * Asks only the name servers, and occupies no thread: the threads of the process, on which
 * `lookup` waits, also hash passwords, and a tenant chooses the name.
 */
async function resolvePublic(name: string): Promise<LookupAddress[]> {
  const found = await Promise.allSettled([dns.resolve4(name), dns.resolve6(name)]);
  const addresses = found.flatMap((each, index) =>
    each.status === 'fulfilled'
      ? each.value.map(address => ({ address, family: index === 0 ? 4 : 6 }))
      : [],
  );
  if (addresses.length === 0) throw new Error(`${name} has no address`);
  return addresses;
}

const dns = new Resolver({ timeout: 2_000, tries: 2 });
const resolveTrusted: Resolve = name => lookup(name, { all: true, order: 'verbatim' });

/** @param mayUse returns false for a forbidden address; then nothing is sent to the name */
function lookupOf(resolve: Resolve, mayUse: (address: string) => boolean): LookupFunction {
  return (name, { all, family }, callback) => {
    const found = resolve(name).then(addresses => {
      const usable = addresses.filter(each => !family || each.family === family);
      if (usable.length === 0 || !addresses.every(({ address }) => mayUse(address))) {
        throw new RefusedAddressError();
      }
      return usable;
    });
    found.then(
      addresses =>
        all
          ? callback(null, addresses)
          : callback(null, addresses[0]!.address, addresses[0]!.family),
      // A tenant must not learn which names the network of the service has.
      () => callback(new RefusedAddressError(), []),
    );
  };
}
