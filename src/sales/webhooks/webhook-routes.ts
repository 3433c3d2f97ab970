import { z } from 'zod';
import { listContract } from '../../lib/http/request/list-parameters/list-contract.ts';
import { refusedUrl, unclearUrl } from '../../lib/outgoing/refused-url.ts';
import type { RowValues, Statement } from '../../lib/postgres/statement.ts';
import { fieldProblem, problem, thrownErrors } from '../../lib/problems.ts';
import { toRow } from '../../lib/runtime/casing.ts';
import type { FieldErrors } from '../../lib/runtime/field-error.ts';
import type { TenantTransaction } from '../../tenancy/connections/tenant-transaction.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { readList } from '../../tenancy/lists/read-page.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { requireScopeAll } from '../../tenancy/require-manager.ts';
import { cursorText } from '../events/change-cursor.ts';
import { readChanges } from '../events/change-reader.ts';
import { visibleChanges } from '../events/change-sources.ts';
import { createSecret, type SecretSealer } from './webhook-secret.ts';
import {
  changeWebhook,
  changeWebhooks,
  type WebhookServices,
  webhookCondition,
} from './webhook-services.ts';
import { deleteOthers } from './webhook-store.ts';
import {
  volatileWebhookFields,
  webhookContract,
  webhookTable,
  webhookView,
} from './webhook-table.ts';
import { isTrusted, receiversOf } from './webhook-target.ts';

export const webhookPath = '/api/v1/Webhooks';
export const webhookDocumentation = {
  tag: 'Webhook',
  access: 'settings.write',
  description:
    'An endpoint of yours that receives changes as they are made, each at least once, signed ' +
    'as Standard Webhooks specifies. The guide says how to verify a message.',
} as const;

const maxWebhooks = 20;
const list = listContract({
  view: webhookView,
  order: { Id: 'asc' },
  key: 'Id',
  search: ['Url', 'Description'],
  includes: ['etag'],
  volatile: volatileWebhookFields,
});
const created = webhookView.extend({
  Secret: z.string().describe('The secret that signs the messages. No other response has it.'),
});
const example = { Url: 'https://hooks.example.com/backoffice', Resources: ['Country', 'Currency'] };
type View = z.input<typeof webhookView>;
type Contract = z.output<typeof webhookContract>;

/**
 * The webhooks of a tenant. Callers need the scope `All`: an endpoint receives the changes of
 * all entities.
 */
export function webhookRoutes(services: WebhookServices): TenantRoute[] {
  return [
    defineRoute({
      ...webhookDocumentation,
      method: 'GET',
      path: webhookPath,
      summary: 'All Webhook records',
      response: z.array(webhookView),
      list,
      handler: async ({ list }, context) => {
        requireScopeAll(context.caller);
        return readList(
          list,
          { table: webhookTable, conditions: [], reads: context },
          { orderBy: { id: 'asc' } },
        );
      },
    }),

    defineRoute({
      ...webhookDocumentation,
      method: 'GET',
      path: `${webhookPath}/:id`,
      cache: 'revalidate',
      summary: 'One Webhook record by its id',
      response: webhookView,
      volatile: volatileWebhookFields,
      handler: async ({ params }, context) => {
        const [webhook] = await context.read(
          webhookTable.select([webhookCondition(params.id, context)]),
        );
        if (!webhook) throw problem('not_found');
        return webhook;
      },
    }),

    defineRoute({
      ...webhookDocumentation,
      method: 'POST',
      path: webhookPath,
      summary: 'Create one Webhook record',
      body: webhookContract,
      example,
      response: created,
      status: 201,
      hasTag: true,
      // no other response has the secret, so that the tag is good for the first change
      volatile: [...volatileWebhookFields, 'Secret'],
      takesIdempotencyKey: true,
      location: webhook => `${webhookPath}/${webhook.Id}`,
      problems: ['limit_reached'],
      handler: async ({ body }, context) => {
        requireScopeAll(context.caller);
        const row = storedRow(services, context, body);
        const made = await changeWebhooks(services, context, (transaction, sealer) =>
          insertWebhook(transaction, row, sealer),
        );

        return { ...made!.Webhook, Secret: made!.Secret! };
      },
      checkValid: ({ body }, context) => errorsOfUrl(services, context, body),
    }),

    defineRoute({
      ...webhookDocumentation,
      method: 'PUT',
      path: `${webhookPath}/:id`,
      summary: 'Replace one Webhook record, and let it be tried again at once',
      body: webhookContract,
      example,
      response: webhookView,
      hasTag: true,
      volatile: volatileWebhookFields,
      takesIfMatch: true,
      handler: async ({ body, ...input }, context) => {
        const row = storedRow(services, context, body);
        const replaced = await changeWebhook(
          services,
          context,
          input,
          async ({ id, version }, transaction) => {
            await transaction.query(deleteOthers(id, row.resources));
            return webhookTable.update({ ...row, version: Number(version) + 1 }, [['id = ?', id]]);
          },
        );
        return replaced!;
      },
      checkValid: ({ body }, context) => errorsOfUrl(services, context, body),
    }),

    defineRoute({
      ...webhookDocumentation,
      method: 'DELETE',
      path: `${webhookPath}/:id`,
      summary: 'Delete one Webhook record, and what it has not received',
      volatile: volatileWebhookFields,
      takesIfMatch: true,
      handler: async (input, context) => {
        await changeWebhook(services, context, input, async ({ id }) =>
          webhookTable.delete([['id = ?', id]]),
        );
      },
    }),
  ];
}

/** Returns the errors of the URL of a webhook whose body the contract refuses. */
async function errorsOfUrl(
  services: WebhookServices,
  context: RequestContext,
  { Url }: { readonly Url?: string },
): Promise<FieldErrors> {
  requireScopeAll(context.caller);
  if (Url === undefined) return {};

  return thrownErrors(async () => requireReceiver(services, context, Url));
}

/** @throws {Problem} for a URL that nothing is sent to, or whose text names another host */
function requireReceiver(
  { trustedReceivers }: WebhookServices,
  { tenant }: RequestContext,
  url: string,
): void {
  const isException = isTrusted(url, receiversOf(trustedReceivers, tenant.guid));
  const refused = refusedUrl(url, isException) ?? unclearUrl(url);
  if (refused !== undefined) throw fieldProblem('Url', refused, 'wrong_format');
}

/**
 * @throws {Problem} for a URL that nothing is sent to, and for a resource that the caller may
 *   not read
 */
function storedRow(
  services: WebhookServices,
  context: RequestContext,
  { Resources, ...body }: Contract,
): RowValues & { readonly resources: readonly string[] } {
  const { caller } = context;
  requireReceiver(services, context, body.Url);
  const { resources } = visibleChanges(caller, Resources);
  const restart = { disabledReason: null, failures: 0, failingSince: null, nextAttemptAt: null };
  return { ...toRow(body), resources, userId: caller.userId, ...restart };
}

/**
 * Inserts a webhook, and returns the statement that inserts its secret: it returns the row of
 * the response, sealed.
 */
async function insertWebhook(
  transaction: TenantTransaction,
  row: RowValues,
  sealer: SecretSealer,
): Promise<Statement<{ Id: number; Webhook: View; Sealed: string }>> {
  // A count without the lock would not see webhooks of other transactions.
  await transaction.query(lockWebhooks);
  const [webhooks] = await transaction.query(countWebhooks);
  if (Number(webhooks?.count) >= maxWebhooks) {
    throw problem('limit_reached', { detail: `The tenant has ${maxWebhooks} webhooks.` });
  }

  const filter = { resources: [] };
  const { last } = await readChanges(each => transaction.query(each), {
    after: 'now',
    limit: 1,
    filter,
  });

  const [webhook] = await transaction.query(
    webhookTable.insert({ ...row, position: cursorText(last) }),
  );
  const id = webhook!.Id;

  return {
    ...insertSecret,
    values: [id, sealer.seal(createSecret(), id), JSON.stringify(webhook)],
  };
}

const lockWebhooks = {
  name: 'lock_webhooks',
  text: 'lock table webhooks in share row exclusive mode',
  values: [],
};
const countWebhooks = { name: 'count_webhooks', text: 'select count(*) from webhooks', values: [] };
const insertSecret = {
  name: 'insert_webhook_secret',
  text: `insert into webhook_secrets (webhook_id, secret) values ($1, $2)
         returning webhook_id as "Id", $3::jsonb as "Webhook", encode(secret, 'base64') as "Sealed"`,
};
