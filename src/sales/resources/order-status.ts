import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { int32, intId, lengths, maxInt32, text, timestamp } from '../../lib/http/request/fields.ts';
import { defineResource } from './rest/define-resource.ts';

const OrderStatusSchema = defineEntity({
  name: 'OrderStatus',
  tableName: 'order_statuses',
  properties: {
    id: p.integer().primary(),
    name: p.text(),
    weighting: p.integer().default(0),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
class OrderStatus extends OrderStatusSchema.class {}
OrderStatusSchema.setClass(OrderStatus);

export const orderStatuses = defineResource({
  name: 'OrderStatus',
  path: '/api/v1/OrderStatuses',
  description: 'The stages of a sales order, listed by weighting.',
  entity: OrderStatus,
  key: { id: maxInt32 },
  access: { read: 'user', write: 'settings.write' },
  orderBy: { weighting: 'asc', id: 'asc' },
  search: ['name'],
  view: z.object({ Id: intId(), Name: z.string(), Weighting: int32(), CreatedAt: timestamp() }),
  create: z.object({ Name: text({ max: lengths.name }), Weighting: int32().default(0) }),
  fields: {
    Name: 'The name of the stage, such as `Shipped`.',
    Weighting: 'The place of the stage in the list: lower numbers come first.',
  },
  example: { Name: 'Shipped', Weighting: 30 },
  onMissing: 'unknown_record',
});
