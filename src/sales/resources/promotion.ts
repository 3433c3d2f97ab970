import { defineEntity, type EntityManager, LockMode, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import {
  code,
  decimal,
  intId,
  lengths,
  longId,
  maxInt32,
  moment,
  optionalText,
  storedCode,
  text,
  timestamp,
} from '../../lib/http/request/fields.ts';
import { pathId } from '../../lib/http/route.ts';
import { toIso } from '../../lib/postgres/column-types.ts';
import { problem } from '../../lib/problems.ts';
import type { FieldError } from '../../lib/runtime/field-error.ts';
import type { Caller } from '../../tenancy/caller.ts';
import { defineRoute } from '../../tenancy/define-route.ts';
import { isSameEntity } from '../../tenancy/own-entity.ts';
import { currencies } from './currency.ts';
import { Entity, entities } from './entity.ts';
import { PromotionUse, promotionUses, promotionUseView, usesBy } from './promotion-use.ts';
import { defineResource } from './rest/define-resource.ts';
import { isForEntity } from './rest/named-entities.ts';

const discountTypes = ['Percentage', 'Amount'] as const;

const PromotionSchema = defineEntity({
  name: 'Promotion',
  tableName: 'promotions',
  properties: {
    id: p.integer().primary(),
    promoCode: p.text(),
    name: p.text(),
    description: p.text().nullable(),
    discountType: p.text().$type<(typeof discountTypes)[number]>(),
    discountValue: p.decimal('number').precision(14).scale(4),
    currencyId: p.integer().nullable(),
    startsAt: p.datetime().nullable(),
    endsAt: p.datetime().nullable(),
    /** The entities that may use the promotion; empty = all. */
    entityIds: p.array(Number).$type<number[]>().columnType('bigint[]').default([]),
    isActive: p.boolean().default(true),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
/** A discount that applies to every entity, or to some. */
class Promotion extends PromotionSchema.class {}
PromotionSchema.setClass(Promotion);

const usePath = '/api/v1/Promotions/:id/entity/:entityId/used';
const tag = 'Promotion';

const readUse = defineRoute({
  method: 'GET',
  path: usePath,
  access: 'user',
  tag,
  summary: 'Whether an entity has used a promotion',
  response: promotionUseView,
  cache: 'revalidate',
  handler: async ({ params }, context) => {
    const em = context.em;
    const { promotion, entity } = await findPair(params, context.caller, em);
    const found = await em.findOne(PromotionUse, {
      promotionId: promotion.id,
      entityId: entity.id,
    });

    return {
      PromotionId: promotion.id,
      EntityId: entity.id,
      Used: found !== null,
      UsedAt: found?.usedAt.toISOString() ?? null,
    };
  },
});

const recordUse = defineRoute({
  method: 'POST',
  path: usePath,
  access: 'pricing.write',
  tag,
  summary: 'Record that an entity uses a promotion',
  description:
    'An entity uses a promotion once, within its period, and only if it is one of the entities of the promotion.',
  response: promotionUseView,
  status: 201,
  hasTag: true,
  takesIdempotencyKey: true,
  problems: ['duplicate', 'in_use'],
  location: answer => `/api/v1/Promotions/${answer.PromotionId}/entity/${answer.EntityId}/used`,
  handler: async ({ params }, context) => {
    const [recorded] = await context.write(async ({ em }) => {
      const { promotion, entity } = await findPair(
        params,
        context.caller,
        em,
        LockMode.PESSIMISTIC_READ,
      );
      requireUsable(promotion, entity, new Date());
      return promotionUses.insert({ promotionId: promotion.id, entityId: entity.id });
    });
    return { ...recorded!, Used: true };
  },
});

/**
 * The promotion and the entity that a path names; 404 if one does not exist or the caller may
 * not see it.
 */
async function findPair(
  params: Readonly<Record<string, string>>,
  caller: Caller,
  em: EntityManager,
  lockMode = LockMode.NONE,
) {
  const id = pathId(params.id, maxInt32);
  const entityId = pathId(params.entityId, Number.MAX_SAFE_INTEGER);
  if (!id || !entityId || (caller.scope === 'Self' && caller.entityId !== entityId)) {
    throw problem('not_found');
  }
  const promotion = await em.findOne(Promotion, { id }, { lockMode });
  if (promotion && caller.scope === 'Self' && !isForEntity(promotion.entityIds, entityId)) {
    throw problem('not_found');
  }
  const entity = promotion && (await em.findOne(Entity, { id: entityId }));
  if (!promotion || !entity) throw problem('not_found');
  if (caller.scope === 'Self' && !isSameEntity(entity, caller.entitySince)) {
    throw problem('not_found');
  }
  return { promotion, entity };
}

function requireUsable(
  { isActive, startsAt, endsAt, entityIds }: Promotion,
  entity: Entity,
  now: Date,
): void {
  const isOutside = (startsAt && startsAt > now) || (endsAt && endsAt <= now);
  const isOfOthers = entityIds.length > 0 && !entityIds.includes(entity.id);
  const ofPromotion = [...(isActive ? [] : [inactive]), ...(isOutside ? [outside] : [])];
  if (ofPromotion.length === 0 && !isOfOthers) return;

  throw problem('validation_failed', {
    errors: {
      ...(ofPromotion.length > 0 ? { PromotionId: ofPromotion } : {}),
      ...(isOfOthers ? { EntityId: [ofOthers] } : {}),
    },
  });
}

const inactive: FieldError = { message: 'is not active', code: 'not_applicable' };
const outside: FieldError = { message: 'is outside its period', code: 'not_applicable' };
const ofOthers: FieldError = {
  message: 'is not one of the entities of the promotion',
  code: 'not_applicable',
};

const tooLarge: FieldError = {
  message: 'must be at most 100 for a percentage',
  code: 'too_large',
  max: 100,
};
const currencyMissing: FieldError = { message: 'is required for an amount', code: 'required' };
const tooEarly: FieldError = { message: 'must be after StartsAt', code: 'out_of_range' };

export const promotions = defineResource({
  name: tag,
  path: '/api/v1/Promotions',
  description:
    'Discounts for every entity, or for those in `EntityIds`. A percentage is at most 100; an amount needs a currency. ' +
    'A caller of scope `Self` reads those for every entity and those for its own, with no other `Id` in `EntityIds`, ' +
    'and changes none.',
  entity: Promotion,
  key: { id: maxInt32 },
  lookup: { property: 'promoCode', param: 'promoCode' },
  access: { read: 'user', write: 'pricing.write' },
  orderBy: { promoCode: 'asc' },
  search: ['promoCode', 'name'],
  longTexts: ['description'],
  references: {
    currencyId: { to: currencies.definition, noun: 'a currency' },
    entityIds: { to: entities.definition, noun: 'an entity' },
  },
  namesEntities: 'entityIds',
  view: z.object({
    Id: intId(),
    PromoCode: storedCode(),
    Name: z.string(),
    Description: z.string().nullable(),
    DiscountType: z.enum(discountTypes),
    DiscountValue: z.number().min(0.0001).max(999_999_999),
    CurrencyId: intId().nullable(),
    StartsAt: timestamp().nullable(),
    EndsAt: timestamp().nullable(),
    EntityIds: z.array(longId()),
    IsActive: z.boolean(),
    CreatedAt: timestamp(),
  }),
  create: z.object({
    PromoCode: code(),
    Name: text({ max: lengths.name }),
    Description: optionalText({ max: lengths.longText, multiline: true }).nullable().default(null),
    DiscountType: z.enum(discountTypes),
    DiscountValue: decimal({ min: 0.0001, max: 999_999_999 }),
    CurrencyId: intId().nullable().default(null),
    StartsAt: moment().nullable().default(null),
    EndsAt: moment().nullable().default(null),
    EntityIds: z.array(longId()).max(100).default([]),
    IsActive: z.boolean().default(true),
  }),
  fields: {
    PromoCode:
      'The code that customers give, such as `SPRING10`. No two records have the same, in any letter case.',
    Name: 'The name of the promotion.',
    Description: 'A text about the promotion, of several lines; null if there is none.',
    DiscountType: 'Whether `DiscountValue` is a percentage or an amount of money.',
    DiscountValue: 'The discount, with at most four decimals: at most 100 if it is a percentage.',
    CurrencyId: 'The `Id` of the currency, which an amount needs; null if there is none.',
    StartsAt: 'When the promotion begins; null if it has no beginning.',
    EndsAt: 'When the promotion ends; null if it has no end.',
    EntityIds:
      'The `Id`s of the entities that may use the promotion, at most 100; empty if every entity may.',
    IsActive: 'Whether entities may use the promotion at present.',
  },
  example: {
    PromoCode: 'SUMMER15',
    Name: 'Summer sale',
    DiscountType: 'Percentage',
    DiscountValue: 15,
  },
  replacement: {
    PromoCode: 'SPRING10',
    Name: 'Spring sale',
    DiscountType: 'Percentage',
    DiscountValue: 10,
  },
  onMissing: 'not_found',
  takesPatch: true,
  rules: ({ discountType, discountValue = 0, currencyId, startsAt, endsAt }) => ({
    ...(discountType === 'Percentage' && discountValue > 100 ? { DiscountValue: [tooLarge] } : {}),
    ...(discountType === 'Amount' && currencyId == null ? { CurrencyId: [currencyMissing] } : {}),
    ...(startsAt && endsAt && timeOf(endsAt) <= timeOf(startsAt) ? { EndsAt: [tooEarly] } : {}),
  }),
  referrers: [usesBy('promotion_id')],
  extraRoutes: [readUse, recordUse],
});

/**
 * Returns the time of a field in ms. A field that the request does not change is a text of
 * PostgreSQL.
 */
function timeOf(moment: Date | string): number {
  return new Date(moment instanceof Date ? moment : toIso(moment)).getTime();
}
