import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { describeFields, intId, longId, timestamp } from '../../lib/http/request/fields.ts';
import type { Condition } from '../../lib/postgres/statement.ts';
import { TableStatements } from '../../lib/postgres/table-statements.ts';
import { ofOwnEntity, ownEntityOf } from '../../tenancy/own-entity.ts';
import type { Referrer } from './rest/references.ts';

/** Maximum uses that are counted. */
const maxUses = 1_000_000;

const PromotionUseSchema = defineEntity({
  name: 'PromotionUse',
  tableName: 'promotion_uses',
  properties: {
    promotionId: p.integer().primary(),
    entityId: p.bigint('number').primary(),
    usedAt: p.datetime().defaultRaw('now()'),
  },
});
/** The use of a promotion by an entity, at most once. */
export class PromotionUse extends PromotionUseSchema.class {}
PromotionUseSchema.setClass(PromotionUse);

/** The fields of a use in responses. */
export const promotionUseView = describeFields(
  { PromotionId: intId(), EntityId: longId(), Used: z.boolean(), UsedAt: timestamp().nullable() },
  {
    PromotionId: 'The `Id` of the promotion.',
    EntityId: 'The `Id` of the entity.',
    Used: 'Whether the entity has used the promotion.',
    UsedAt: 'When the entity used the promotion; null if it has not.',
  },
).meta({ title: 'PromotionUse' });
export const promotionUses = new TableStatements(
  PromotionUse,
  promotionUseView.omit({ Used: true }),
);

/** The uses that refer to a record by a column, as far as the caller may read them. */
export const usesBy = (column: 'promotion_id' | 'entity_id'): Referrer => ({
  resource: 'PromotionUse',
  count: async (key, context) => {
    const own = ownEntityOf(context.caller);
    const conditions: Condition[] = [
      [`${column} = ?`, key],
      ...(own ? [ofOwnEntity('entity_id', own)] : []),
    ];

    const [row] = await context.read(promotionUses.selectCount(conditions, maxUses));
    return Number(row?.count ?? 0);
  },
});
