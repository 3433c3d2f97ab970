import { z } from 'zod';

/**
 * A provider of sign-in (OpenID Connect) that the operator trusts for one tenant: at any port,
 * with any address.
 */
export interface TrustedProvider {
  readonly tenantGuid: string;
  /** Scheme, which is https, host and port. */
  readonly origin: string;
}

const guid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The guid of a tenant, an equals sign and an origin, separated by commas from others. */
export const trustedProviders = z.string().transform((text, context): TrustedProvider[] => {
  const items = text.split(',').map(item => item.trim());
  const providers = items.filter(Boolean).map(parseProvider);
  if (providers.every(provider => provider !== undefined)) return providers;

  context.addIssue(
    'must be a comma-separated list of providers, each the guid of its tenant, = and an https origin without a path, such as ' +
      '0f7c1d3e-5b7a-4c59-9d0e-6a1f2b3c4d5e=https://sso.example.com:8443: bin/backoffice show prints the guid',
  );
  return z.NEVER;
});

function parseProvider(item: string): TrustedProvider | undefined {
  const [, tenantGuid = '', text = ''] = /^([^=]*)=(.*)$/.exec(item) ?? [];
  const url = URL.parse(text);
  if (!guid.test(tenantGuid) || url?.protocol !== 'https:') return undefined;
  // A path would promise a bound that nothing checks.
  if (!/^https:\/\/[^/\\?#@\s]+\/?$/i.test(text)) return undefined;

  return { tenantGuid: tenantGuid.toLowerCase(), origin: url.origin };
}
