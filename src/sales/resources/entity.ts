import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import type { UserCounts } from '../../control/directory.ts';
import {
  intId,
  lengths,
  longId,
  storedCode,
  text,
  timestamp,
} from '../../lib/http/request/fields.ts';
import { countries } from './country.ts';
import { currencies } from './currency.ts';
import { entityStatuses } from './entity-status.ts';
import { usesBy } from './promotion-use.ts';
import { defineResource } from './rest/define-resource.ts';
import type { Referrer } from './rest/references.ts';

const entityTypes = ['supplier', 'customer'] as const;

const EntitySchema = defineEntity({
  name: 'Entity',
  tableName: 'entities',
  properties: {
    id: p.bigint('number').primary(),
    name: p.text(),
    entityType: p.text().$type<(typeof entityTypes)[number]>(),
    statusId: p.integer(),
    statusTitle: p
      .text()
      .formula(
        alias =>
          `(select title from entity_statuses where entity_statuses.id = ${alias}.status_id)`,
      ),
    currencyId: p.integer().nullable(),
    countryCode: p.text().nullable(),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
/**
 * A supplier or a customer. Users belong to one; a caller of scope `Self` reaches only the
 * records of its own.
 */
export class Entity extends EntitySchema.class {}
EntitySchema.setClass(Entity);

/**
 * SQL: the id of the default status; that of the first status if no default was ever set,
 * because there was no status at first.
 */
const defaultStatusId = `coalesce((select status_id from default_entity_status),
                                  (select id from entity_statuses order by id limit 1))`;

export const entities = defineResource({
  name: 'Entity',
  path: '/api/v1/Entities',
  description:
    'Suppliers and customers. `StatusTitle` is the title of the entity status; without `StatusId`, an entity gets ' +
    'the default status (at first called Prospect). A caller of scope `Self` reads and ' +
    'changes only its own entity, and neither creates nor deletes entities.',
  entity: Entity,
  key: { id: Number.MAX_SAFE_INTEGER },
  access: { read: 'user', write: 'full.manage' },
  orderBy: { id: 'asc' },
  search: ['name'],
  computed: ['statusTitle'],
  paged: true,
  references: {
    statusId: {
      to: entityStatuses.definition,
      noun: 'an entity status',
      title: 'title',
      shownAs: 'statusTitle',
      byDefault: defaultStatusId,
    },
    currencyId: { to: currencies.definition, noun: 'a currency' },
    countryCode: { to: countries.definition, noun: 'a country' },
  },
  scopedBy: 'id',
  view: z.object({
    Id: longId(),
    Name: z.string(),
    EntityType: z.enum(entityTypes),
    StatusId: intId(),
    StatusTitle: z.string(),
    CurrencyId: intId().nullable(),
    CountryCode: storedCode().nullable(),
    CreatedAt: timestamp(),
  }),
  create: z.object({
    Name: text({ max: lengths.name }),
    EntityType: z.enum(entityTypes),
    // Absent = 0, which no status has: the default status takes its place.
    StatusId: intId()
      .optional()
      .transform(id => id ?? 0),
    CurrencyId: intId().nullable().default(null),
    CountryCode: text({ max: lengths.code }).nullable().default(null),
  }),
  fields: {
    Name: 'The name of the supplier or customer.',
    EntityType: 'Whether the entity is a supplier or a customer.',
    StatusId: 'The `Id` of the entity status. Without it, a new entity gets the default status.',
    StatusTitle: 'The title of the entity status.',
    CurrencyId: 'The `Id` of the currency that the entity trades in; null if none is chosen.',
    CountryCode: 'The code of the country of the entity; null if none is chosen.',
  },
  example: { Name: 'Northwind Traders', EntityType: 'customer', StatusId: 2 },
  onMissing: 'not_found',
  takesPatch: true,
  isReferenced: async (id, context) => {
    const { people, programs } = await context.countUsers(id);
    return people + programs > 0;
  },
  referrers: [usersAs('User', 'people'), usersAs('Program', 'programs'), usesBy('entity_id')],
});

/** Counts the users of one kind who belong to an entity, for a caller who may read them. */
function usersAs(resource: string, kind: keyof UserCounts): Referrer {
  return {
    resource,
    count: async (id, context) =>
      context.caller.permissions.has('users.read')
        ? (await context.countUsers(Number(id)))[kind]
        : 0,
  };
}
