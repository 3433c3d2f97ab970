import type { SecretBox } from '../control/secret-box.ts';
import type { RequestContext } from '../tenancy/request-context.ts';
import type { WebhookDispatcher } from './webhook-dispatcher.ts';
import { createTenantKey, openTenantKey, type SecretSealer } from './webhook-secret.ts';
import type { TrustedReceivers } from './webhook-target.ts';

/** The services that the routes use. */
export interface WebhookServices {
  secrets: SecretBox;
  webhooks: Pick<WebhookDispatcher, 'queue' | 'wake'>;
  trustedReceivers: TrustedReceivers;
  /** Unix time in ms. */
  now: () => number;
}

/**
 * Makes a change of webhooks. The control database gets the tenant before, so that a process which is killed after the
 * change leaves no webhook that nobody serves.
 * @param change gets what seals the secrets of the tenant
 */
export async function changeWebhooks<T>(
  { secrets, webhooks }: WebhookServices,
  { tenant }: RequestContext,
  change: (sealer: SecretSealer) => Promise<T>,
): Promise<T> {
  const sealedKey = await webhooks.queue.activate(tenant.id, createTenantKey(secrets, tenant.guid));
  const result = await change(openTenantKey(secrets, tenant.guid, sealedKey));
  webhooks.wake(tenant.guid);
  return result;
}
