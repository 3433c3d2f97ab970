import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import {
  describeFields,
  flag,
  intCount,
  limit,
  moment,
  queryId,
  timestamp,
} from '../../lib/http/request/fields.ts';
import { listContract } from '../../lib/http/request/list-parameters/list-contract.ts';
import type { Condition } from '../../lib/postgres/statement.ts';
import { fieldProblem, hasCode, type Problem, problem } from '../../lib/problems.ts';
import type { TenantTransaction } from '../../tenancy/connections/tenant-transaction.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { readList } from '../../tenancy/lists/read-page.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import type { Reader } from '../events/change-sources.ts';
import { maxScanned } from '../events/change-statement.ts';
import { accessMark } from '../events/reader-cursor.ts';
import { retryDelaysMs } from './endpoint-state.ts';
import { readWaiting } from './failing-webhook.ts';
import { maxFormer, overlapHours, rotateSecret } from './rotate-secret.ts';
import { changeBody, messageBody } from './webhook-message.ts';
import { findChange, isPassed, nextPlace, placeAt, readNext } from './webhook-places.ts';
import { findReader } from './webhook-reader.ts';
import { webhookDocumentation, webhookPath } from './webhook-routes.ts';
import {
  changeWebhook,
  type LockedWebhook,
  type WebhookServices,
  webhookCondition,
} from './webhook-services.ts';
import {
  insertMessage,
  maxMessages,
  movePosition,
  retryNow,
  selectFailed,
} from './webhook-store.ts';
import { deliveryTable, deliveryView, webhookTable } from './webhook-table.ts';

const path = `${webhookPath}/:id`;
const query = z.object({ limit: limit(), after: queryId() });
const deliveries = listContract({
  view: deliveryView,
  query,
  order: { Id: 'desc' },
  key: 'Id',
  search: ['MessageId', 'Type'],
  hasTrigrams: false,
  longTexts: ['Response'],
});
const message = z.object({
  MessageId: z.string().describe('The header `webhook-id` of the message.'),
});
/** Maximum failed changes that one request sends again: each of them is a read of the feed. */
const maxRetried = 100;
const maxCounted = 1_000;
const waitingView = describeFields(
  { Messages: intCount(), IsMore: z.boolean(), Since: timestamp().nullable() },
  {
    Messages: 'The messages that are still to be sent: changes, and those beside them.',
    IsMore: `Whether there may be more: ${maxScanned} changes of all resources are looked at.`,
    Since: 'When the first of these changes was made; null if none waits.',
  },
).meta({ title: 'WebhookWaiting' });
const retryOrder = z.object({
  Since: moment()
    .optional()
    .describe('From when on changes that have failed, and were left out, are sent again.'),
});
const retried = z.object({
  Changes: intCount().describe(
    'The changes at which the webhook stands, which wait in their order; at most 1,000 are counted.',
  ),
  Messages: intCount().describe('The messages beside them that are sent now.'),
});
const rotated = z.object({
  Secret: z.string().describe('The new secret. No other response has it.'),
  PreviousUntil: timestamp()
    .nullable()
    .describe(
      'Until then messages are signed with the former secret, too; null if no former one signs any more.',
    ),
});
const replayed = z.object({
  MessageId: z
    .string()
    .min(1)
    .max(100)
    .optional()
    .describe('The `MessageId` of the change to send again.'),
  Since: moment().optional().describe('From when on all changes are sent again, in their order.'),
});

/** Further actions on a webhook: see its attempts, and send, repeat or leave out messages. */
export function webhookActionRoutes(services: WebhookServices): TenantRoute[] {
  const action = { ...webhookDocumentation, method: 'POST', takesIdempotencyKey: true } as const;

  return [
    defineRoute({
      ...webhookDocumentation,
      method: 'GET',
      path: `${path}/Deliveries`,
      summary: 'The newest attempts of a webhook',
      query,
      list: deliveries,
      response: z.array(deliveryView),
      handler: async ({ params, query: { limit, after }, list }, context) => {
        const condition = webhookCondition(params.id, context);
        const [webhook] = await context.read(webhookTable.select([condition]));
        if (!webhook) throw problem('not_found');

        const conditions: (Condition | undefined)[] = [
          ['webhook_id = ?', webhook.Id],
          ["attempted_at > now() - interval '30 days'"],
          after === undefined ? undefined : ['id < ?', after],
        ];

        return readList(
          list,
          { table: deliveryTable, conditions, reads: context },
          { orderBy: { id: 'desc' }, limit },
        );
      },
    }),

    defineRoute({
      ...webhookDocumentation,
      method: 'GET',
      path: `${path}/Waiting`,
      summary: 'How much a webhook still has to send, and since when',
      response: waitingView,
      handler: async ({ params }, context) => {
        const [, id] = webhookCondition(params.id, context);
        const waiting = await readWaiting(context.read.bind(context), Number(id));
        if (!waiting) throw problem('not_found');

        return {
          Messages: waiting.waiting,
          IsMore: waiting.isMore,
          Since: waiting.waitingSince,
        };
      },
    }),

    defineRoute({
      ...action,
      path: `${path}/test`,
      summary: 'Send a message of type webhook.test, once',
      response: message,
      status: 202,
      handler: async (input, context) => {
        const at = services.now();
        const body = messageBody('webhook.test', new Date(at).toISOString(), {});
        const test = { messageId: `msg_${randomUUID()}`, body, failures: retryDelaysMs.length, at };

        const sent = await changeWebhook(services, context, input, async webhook =>
          insertMessage(requireEnabled(webhook).id, test),
        );
        return requireRoom(sent);
      },
    }),

    defineRoute({
      ...action,
      path: `${path}/replay`,
      summary: 'Send one change again, or all since a moment',
      description:
        'Messages have the same ids as before. With `Since`, the webhook goes back to the first change of that time; one ' +
        'that was made up to a minute before may be sent again, too.',
      body: replayed,
      example: { Since: '2026-11-24T08:00:00Z' },
      status: 202,
      response: z.object({
        MessageId: z.string().nullable().describe('The repeated message; null for several.'),
      }),
      problems: ['unknown_record', 'not_found'],
      handler: async ({ body: { MessageId, Since }, ...input }, context) => {
        if ((MessageId === undefined) === (Since === undefined)) throw oneOfBoth();

        const row = await changeWebhook(services, context, input, async (webhook, transaction) => {
          const { id, payload, userId, ...placed } = requireEnabled(webhook);
          const read = transaction.query.bind(transaction);

          if (MessageId === undefined) {
            return movePosition(id, await placeAt(read, placed, Since!));
          }

          const reader = await requireReader(services, context, userId);
          const body = changeBody(
            await findChange(read, placed, MessageId),
            accessMark(reader),
            payload,
          );
          return insertMessage(id, { messageId: MessageId, body, failures: 0, at: services.now() });
        });

        requireRoom(row);
        return { MessageId: MessageId ?? null };
      },
      checkValid: async ({ body, errors }) => {
        const [isMessage, isSince] = ['MessageId', 'Since'].map(
          name => body[name] !== undefined || Object.hasOwn(errors, name),
        );
        return isMessage === isSince ? (oneOfBoth().errors ?? {}) : {};
      },
    }),

    defineRoute({
      ...action,
      path: `${path}/retry`,
      summary: 'Try again at once, and send what has failed since a moment',
      description:
        'For a receiver that works again: what waits for a retry is sent now. With `Since`, also each change whose last ' +
        'attempt since then has failed, and which the webhook has left out, at most the first ' +
        `${maxRetried} of them, with the same ids.`,
      body: retryOrder,
      example: { Since: '2026-11-24T08:00:00Z' },
      status: 202,
      response: retried,
      handler: async ({ body: { Since }, ...input }, context) => {
        const row = await changeWebhook(services, context, input, async (webhook, transaction) => {
          const { id } = requireEnabled(webhook);
          if (Since) {
            await sendFailedAgain(services, context, { webhook, transaction, since: Since });
          }

          const { changes } = await readNext(
            transaction.query.bind(transaction),
            webhook,
            maxCounted,
          );
          return retryNow(id, changes.length, services.now());
        });
        return row!;
      },
    }),

    defineRoute({
      ...action,
      path: `${path}/skip`,
      summary: 'Leave out the message at which a webhook stands, or all until now',
      query: z.object({ all: flag().describe('Whether to leave out all changes until now.') }),
      status: 204,
      handler: async ({ query: { all }, ...input }, context) => {
        await changeWebhook(services, context, input, async (webhook, transaction) =>
          movePosition(
            webhook.id,
            await nextPlace(transaction.query.bind(transaction), webhook, all),
          ),
        );
      },
    }),

    defineRoute({
      ...action,
      path: `${path}/rotate`,
      summary: 'Replace the secret of a webhook',
      description:
        `For ${overlapHours} hours, messages are signed with the former secret, too, so that the receiver can change ` +
        'to the new one. A further rotation meanwhile takes no time from those before it: messages have a signature ' +
        `of each, the newest first, and at most ${maxFormer} former ones. With \`endPrevious\`, all former secrets ` +
        'end at once, also the one that is replaced: for a secret that somebody else knows.',
      query: z.object({
        endPrevious: flag().describe('Whether all former secrets end at once.'),
      }),
      response: rotated,
      problems: ['limit_reached'],
      handler: async ({ query: { endPrevious }, ...input }, context) => {
        const row = await changeWebhook(services, context, input, ({ id }, transaction, sealer) =>
          rotateSecret({
            webhookId: id,
            transaction,
            sealer,
            endPrevious,
            now: services.now(),
          }),
        );
        return { Secret: row!.Secret!, PreviousUntil: row!.PreviousUntil };
      },
    }),
  ];
}

/** The problem of a replay of neither a change nor a time, or of both. */
const oneOfBoth = (): Problem =>
  fieldProblem('MessageId', 'is required, or Since instead', 'required');

/**
 * Queues the changes that have failed since a moment, and that the webhook will not come to by
 * itself.
 */
async function sendFailedAgain(
  services: WebhookServices,
  context: RequestContext,
  {
    webhook,
    transaction,
    since,
  }: { webhook: LockedWebhook; transaction: TenantTransaction; since: Date },
): Promise<void> {
  const { id, payload, userId } = webhook;
  const read = transaction.query.bind(transaction);
  const failed = await read(selectFailed(id, since, maxCounted));
  const leftOut = failed
    .filter(({ messageId }) => isPassed(webhook, messageId))
    .slice(0, maxRetried);
  if (leftOut.length === 0) return;

  const reader = await requireReader(services, context, userId);
  for (const { messageId } of leftOut) {
    const change = await findChange(read, webhook, messageId).catch(ignoreMissing);
    if (!change) continue;

    const body = changeBody(change, accessMark(reader), payload);
    const [queued] = await read(
      insertMessage(id, { messageId, body, failures: 0, at: services.now() }),
    );
    requireRoom(queued);
  }
}

/**
 * Ignores the error of a change that the retention has removed from the feed, or that the
 * webhook does not receive any more; throws every other error.
 */
function ignoreMissing(error: unknown): undefined {
  if (!hasCode(error, 'unknown_record') && !hasCode(error, 'cursor_expired')) throw error;
}

function requireEnabled(webhook: LockedWebhook): LockedWebhook {
  if (!webhook.isEnabled) throw problem('invalid_request', { detail: 'The webhook is disabled.' });
  return webhook;
}

/** @throws {Problem} `invalid_request` when the user of a webhook is disabled or deleted */
async function requireReader(
  { directory }: WebhookServices,
  { tenant }: RequestContext,
  userId: number,
): Promise<Reader> {
  const reader = await findReader(directory, tenant.id, userId);
  if (!reader) {
    throw problem('invalid_request', {
      detail: 'The user of the webhook is disabled. Replace the webhook.',
    });
  }

  return reader;
}

/** @throws {Problem} `rate_limited` when `insertMessage` has added no row */
function requireRoom<Row>(row: Row | undefined): Row {
  if (row) return row;
  const detail = `The webhook has ${maxMessages} messages to send. Wait until the receiver has taken some of them.`;
  throw problem('rate_limited', { detail, headers: { 'Retry-After': '60' } });
}
