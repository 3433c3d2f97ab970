import type { TenantRecord } from '../../control/records.ts';

/**
 * The purpose of the link of a mail: it is the path of the service's own page, and `{action}`
 * of an address.
 */
export type AccountAction = 'accept' | 'confirm' | 'reset';

/** Returns the address that a mail links to. */
export type AccountLink = (
  action: AccountAction,
  tenant: Pick<TenantRecord, 'guid' | 'appUrl'>,
  token: string,
) => string;

interface LinkOptions {
  /** The address of the pages that the operator has set for all tenants, with placeholders. */
  readonly appUrl: string | undefined;
  readonly publicUrl: string;
}

/**
 * Links to the pages that are set for the tenant, else for all tenants, else to those of the
 * service itself. An address has the placeholders `{action}`, `{tenant}` and `{token}`, whose
 * values need no encoding.
 */
export function accountLinks({ appUrl, publicUrl }: LinkOptions): AccountLink {
  const ownPages = `${publicUrl}/{action}?tenant={tenant}&token={token}`;
  return (action, tenant, token) => {
    const values = { action, tenant: tenant.guid, token };
    const address = tenant.appUrl ?? appUrl ?? ownPages;
    return address.replaceAll(
      /\{(action|tenant|token)\}/g,
      (_, name: keyof typeof values) => values[name],
    );
  };
}
