import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { int32, intId, lengths, maxInt32, text, timestamp } from '../../lib/http/request/fields.ts';
import { defineResource } from './rest/define-resource.ts';

const EntityStatusSchema = defineEntity({
  name: 'EntityStatus',
  tableName: 'entity_statuses',
  properties: {
    id: p.integer().primary(),
    title: p.text(),
    weighting: p.integer().default(0),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
export class EntityStatus extends EntityStatusSchema.class {}
EntityStatusSchema.setClass(EntityStatus);

/**
 * The state of the company's relation with an entity, such as prospect or inactive. Each
 * company has its own.
 */
export const entityStatuses = defineResource({
  name: 'EntityStatus',
  path: '/api/v1/EntityStatus',
  description:
    'The state of the relation with an entity, listed by weighting. A status that entities ' +
    'refer to cannot be deleted, nor the default status (at first called Prospect).',
  entity: EntityStatus,
  key: { id: maxInt32 },
  access: { read: 'full.read', write: 'full.manage' },
  orderBy: { weighting: 'asc', id: 'asc' },
  search: ['title'],
  view: z.object({ Id: intId(), Title: z.string(), Weighting: int32(), CreatedAt: timestamp() }),
  create: z.object({ Title: text({ max: lengths.name }), Weighting: int32().default(0) }),
  fields: {
    Title: 'The name of the status, such as `Prospect`.',
    Weighting: 'The place of the status in the list: lower numbers come first.',
  },
  example: { Title: 'Key account', Weighting: 3 },
  onMissing: 'not_found',
  putsPart: true,
  takesPatch: true,
});
