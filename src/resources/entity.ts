import { defineEntity, p } from '@mikro-orm/postgresql';

/** A supplier or a customer: what users belong to, and what scope `Self` is measured by. */
const EntitySchema = defineEntity({
  name: 'Entity',
  tableName: 'entities',
  properties: {
    id: p.bigint('number').primary(),
    name: p.text(),
    entityType: p.text().$type<'supplier' | 'customer'>(),
    statusId: p.integer().default(1),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
export class Entity extends EntitySchema.class {}
EntitySchema.setClass(Entity);
