import type { TrustedProvider } from '../config/trusted-providers.ts';
import { refusedUrl, unclearUrl } from '../outgoing/refused-url.ts';

/**
 * Returns why an address is no issuer from which a tenant may have its people signed in, to
 * complete "the issuer …"; undefined for an allowed one. An issuer is an https URL without query
 * and fragment (OpenID Connect Discovery 1.0 §2), at a public address unless the operator trusts
 * its origin for this tenant, and names the host that it leads to.
 */
export function refusedIssuer(
  issuer: string,
  tenantGuid: string,
  trusted: readonly TrustedProvider[],
): string | undefined {
  if (issuer.includes('?')) return 'must have no query';
  if (issuer.includes('#')) return 'must have no fragment';

  return refusedFetch(issuer, tenantGuid, trusted) ?? unclearUrl(issuer);
}

/** Returns why nothing is fetched from a URL of a provider; undefined for an allowed one. */
export function refusedFetch(
  url: string,
  tenantGuid: string,
  trusted: readonly TrustedProvider[],
): string | undefined {
  const isHttps = URL.parse(url)?.protocol === 'https:';
  if (!isHttps) return 'must be an absolute https URL';

  return refusedUrl(url, isTrustedOrigin(url, tenantGuid, trusted));
}

/** True for a URL whose origin the operator trusts as a provider of this tenant. */
export function isTrustedOrigin(
  url: string,
  tenantGuid: string,
  trusted: readonly TrustedProvider[],
): boolean {
  const origin = URL.parse(url)?.origin;

  return trusted.some(each => each.tenantGuid === tenantGuid && each.origin === origin);
}
