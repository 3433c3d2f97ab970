import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import {
  describeFields,
  intCount,
  intId,
  lengths,
  longId,
  optionalText,
  text,
  timestamp,
} from '../../lib/http/request/fields.ts';
import { TableStatements } from '../../lib/postgres/table-statements.ts';
import { changeActions } from '../audit/audit-log.ts';
import { changeSources } from '../events/change-sources.ts';
import { sendErrors } from './send-webhook.ts';

const WebhookSchema = defineEntity({
  name: 'Webhook',
  tableName: 'webhooks',
  properties: {
    id: p.integer().primary(),
    url: p.text(),
    description: p.text().nullable(),
    resources: p.array(),
    actions: p.array(),
    payload: p.text().$type<'thin' | 'record'>(),
    isEnabled: p.boolean(),
    disabledReason: p.text().nullable(),
    userId: p.bigint('number'),
    createdAt: p.datetime().defaultRaw('now()'),
    position: p.text(),
    positionAt: p.datetime().defaultRaw('now()'),
    version: p.bigint('number').default(0),
    failures: p.integer().default(0),
    failingSince: p.datetime().nullable(),
    nextAttemptAt: p.datetime().nullable(),
    lastSuccessAt: p.datetime().nullable(),
    previousUntil: p
      .datetime()
      .nullable()
      .formula(
        webhooks =>
          `(select max(until) from webhook_secrets s, unnest(s.previous_until) until
             where s.webhook_id = ${webhooks}.id and until > now())`,
      ),
  },
});
/**
 * An endpoint that receives changes: a place in the feed of changes, and where they are sent.
 */
export class Webhook extends WebhookSchema.class {}
WebhookSchema.setClass(Webhook);

const DeliverySchema = defineEntity({
  name: 'WebhookDelivery',
  tableName: 'webhook_deliveries',
  properties: {
    id: p.bigint('number').primary(),
    webhookId: p.integer(),
    messageId: p.text(),
    type: p.text(),
    attemptedAt: p.datetime().defaultRaw('now()'),
    durationMs: p.integer(),
    status: p.integer().nullable(),
    error: p.text().nullable(),
    response: p.text().nullable(),
  },
});
/** One attempt to send a message. */
export class WebhookDelivery extends DeliverySchema.class {}
DeliverySchema.setClass(WebhookDelivery);

const resources = [...changeSources.keys()];
const disabledReasons = ['gone', 'failing', 'rights', 'operator'] as const;

const fields = {
  Url: 'Where messages are sent, by POST: https, with port 443 or 8443.',
  Description: 'A text about the endpoint; null if there is none.',
  Resources:
    'The resources whose changes are sent. Without it: all whose records the caller may read.',
  Actions: 'The actions that are sent. Without it: all.',
  Payload: '`thin`: what has changed; `record`: also the record as it is afterwards.',
  IsEnabled: 'Whether messages are sent. An endpoint that is enabled again goes on where it stood.',
};

export const webhookView = describeFields(
  {
    Id: intId(),
    Url: z.string(),
    Description: z.string().nullable(),
    Resources: z.array(z.enum(resources)),
    Actions: z.array(z.enum(changeActions)),
    Payload: z.enum(['thin', 'record']),
    IsEnabled: z.boolean(),
    DisabledReason: z.enum(disabledReasons).nullable(),
    UserId: longId(),
    FailingSince: timestamp().nullable(),
    NextAttemptAt: timestamp().nullable(),
    LastSuccessAt: timestamp().nullable(),
    PreviousUntil: timestamp().nullable(),
    CreatedAt: timestamp(),
  },
  {
    ...fields,
    Id: 'The number of the endpoint, which the service chooses.',
    DisabledReason:
      'Why the service or its operator has disabled it: `gone` (the receiver responded ' +
      '410), `failing` (for 5 days), `rights` (its user was disabled, or may not read all ' +
      'that it sends), `operator`; else null.',
    UserId:
      'The number of the user who created it or replaced it last. It sends only what this ' +
      'user may read.',
    FailingSince: 'The first failure since the last success; null if the last attempt succeeded.',
    NextAttemptAt:
      'When the endpoint sends again the change at which it stands; null if none has failed.',
    LastSuccessAt: 'When a message has last arrived.',
    PreviousUntil:
      'Until when messages are signed with former secrets, too; null if only with the present one.',
    CreatedAt: 'When the endpoint was created.',
  },
).meta({ title: 'Webhook' });

/**
 * The fields that attempts to deliver, rotations and the time change, which is no change of the
 * webhook.
 */
export const volatileWebhookFields: readonly (keyof z.output<typeof webhookView>)[] = [
  'FailingSince',
  'NextAttemptAt',
  'LastSuccessAt',
  'PreviousUntil',
];

const distinct = <Item extends string>(items: readonly Item[]): Item[] => [...new Set(items)];

export const webhookContract = describeFields(
  {
    Url: text({ max: 2_000 }),
    Description: optionalText({ max: lengths.name }).nullable().default(null),
    Resources: z.array(z.enum(resources)).min(1).transform(distinct).optional(),
    Actions: z
      .array(z.enum(changeActions))
      .min(1)
      .transform(distinct)
      .default([...changeActions]),
    Payload: z.enum(['thin', 'record']).default('thin'),
    IsEnabled: z.boolean().default(true),
  },
  fields,
);

export const deliveryView = describeFields(
  {
    Id: longId(),
    MessageId: z.string(),
    Type: z.string(),
    AttemptedAt: timestamp(),
    DurationMs: intCount(),
    Status: intCount().nullable(),
    Error: z.enum(sendErrors).nullable(),
    Response: z.string().nullable(),
  },
  {
    Id: 'The number of the attempt.',
    MessageId: 'The header `webhook-id` of the message: the same in all attempts.',
    Type: 'The type of the message, such as `country.updated`.',
    AttemptedAt: 'When the attempt ended.',
    DurationMs: 'How long the attempt took, in milliseconds.',
    Status: 'The status of the response; null without one.',
    Error:
      'Why the attempt failed: `unsuccessful response` is another status than 2xx ' +
      '(`Status`), `refused address` an address that nothing is sent to, `secret` a ' +
      'secret that must be rotated; null if it succeeded.',
    Response:
      'The first 1 KiB of the response; null without one, and for a receiver that the operator ' +
      'allows as an exception.',
  },
).meta({ title: 'WebhookDelivery' });

export const webhookTable = new TableStatements(Webhook, webhookView);
export const deliveryTable = new TableStatements(WebhookDelivery, deliveryView);
