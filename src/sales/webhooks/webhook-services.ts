import type { Directory } from '../../control/directory.ts';
import { storeSealed } from '../../control/present-key.ts';
import type { SecretBox } from '../../control/secret-box.ts';
import type { TrustedReceiver } from '../../lib/config/trusted-receivers.ts';
import { maxInt32 } from '../../lib/http/request/fields.ts';
import type { Precondition } from '../../lib/http/response/representation.ts';
import { pathId } from '../../lib/http/route.ts';
import type { Condition, RowValues, Statement } from '../../lib/postgres/statement.ts';
import { problem } from '../../lib/problems.ts';
import type { TenantTransaction } from '../../tenancy/connections/tenant-transaction.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { requireScopeAll } from '../../tenancy/require-manager.ts';
import { lockRecord } from '../resources/rest/resource-access.ts';
import type { PlacedWebhook } from './endpoint-state.ts';
import type { WebhookDispatcher } from './webhook-dispatcher.ts';
import { createTenantKey, openTenantKey, type SecretSealer } from './webhook-secret.ts';
import { webhookTable } from './webhook-table.ts';

/** The services that the routes use. */
export interface WebhookServices {
  directory: Directory;
  secrets: SecretBox;
  webhooks: Pick<WebhookDispatcher, 'queue' | 'wake'>;
  trustedReceivers: readonly TrustedReceiver[];
  /** The time of the control database, in ms since 1970. */
  now: () => number;
}

/**
 * The condition for the webhook that a path names.
 * @throws {Problem} `not_found`; 403 without the scope `All`
 */
export function webhookCondition(id: string | undefined, context: RequestContext): Condition {
  requireScopeAll(context.caller);
  const parsed = pathId(id, maxInt32);
  if (parsed === undefined) throw problem('not_found');
  return ['id = ?', parsed];
}

/**
 * Makes a change of webhooks in a transaction. The tenant is entered into the control database
 * before the change, so that a process that is killed after it leaves no webhook that nobody
 * serves.
 * @param change receives the sealer of the tenant's secrets
 * @returns the row of the statement. A row with the column `Sealed`, the sealed secret of the
 *   webhook `Id` in base64, also has the `Secret`
 */
export async function changeWebhooks<Row extends RowValues>(
  { secrets, webhooks }: WebhookServices,
  context: RequestContext,
  change: (transaction: TenantTransaction, sealer: SecretSealer) => Promise<Statement<Row>>,
): Promise<(Row & { readonly Secret?: string }) | undefined> {
  const { id, guid } = context.tenant;
  const sealedKey = await storeSealed(secrets, () =>
    webhooks.queue.activate(id, () => createTenantKey(secrets, guid)),
  );
  const sealer = openTenantKey(secrets, guid, sealedKey);
  const [row] = await context.write(transaction => change(transaction, sealer));
  webhooks.wake(guid);
  if (!row?.Sealed) return row;

  return {
    ...row,
    Secret: sealer.open(Buffer.from(String(row.Sealed), 'base64'), Number(row.Id)),
  };
}

/** The properties of a webhook that a transaction has locked. */
export interface LockedWebhook extends PlacedWebhook {
  readonly id: number;
  readonly payload: 'thin' | 'record';
  readonly isEnabled: boolean;
  readonly userId: number;
  readonly version: string;
}

/** Makes a change of the webhook that a path names, as `changeWebhooks` does. */
export function changeWebhook<Row extends RowValues>(
  services: WebhookServices,
  context: RequestContext,
  {
    params,
    precondition,
  }: { params: { readonly [name: string]: string }; precondition?: Precondition | undefined },
  change: (
    webhook: LockedWebhook,
    transaction: TenantTransaction,
    sealer: SecretSealer,
  ) => Promise<Statement<Row>>,
): Promise<(Row & { readonly Secret?: string }) | undefined> {
  const condition = webhookCondition(params.id, context);
  const stored = { table: webhookTable, onMissing: 'not_found' } as const;
  return changeWebhooks(services, context, async (transaction, sealer) => {
    const webhook = await lockRecord<LockedWebhook>(stored, transaction, [condition], precondition);
    return change(webhook, transaction, sealer);
  });
}
