import { Activity } from './activity/activity.ts';
import { AuditEntry } from './audit/audit-log.ts';
import { resources } from './resources/index.ts';
import { PromotionUse } from './resources/promotion-use.ts';
import { Webhook, WebhookDelivery } from './webhooks/webhook-table.ts';

/** Every entity that is stored in a tenant database. */
export const tenantEntities = [
  ...resources.map(resource => resource.entity),
  PromotionUse,
  Activity,
  AuditEntry,
  Webhook,
  WebhookDelivery,
];
