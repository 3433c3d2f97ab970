import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import {
  code,
  intId,
  lengths,
  maxInt32,
  storedCode,
  text,
  timestamp,
} from '../../lib/http/request/fields.ts';
import { defineResource } from './rest/define-resource.ts';

const UnitOfMeasureSchema = defineEntity({
  name: 'UnitOfMeasure',
  tableName: 'units_of_measure',
  properties: {
    id: p.integer().primary(),
    code: p.text(),
    name: p.text(),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
class UnitOfMeasure extends UnitOfMeasureSchema.class {}
UnitOfMeasureSchema.setClass(UnitOfMeasure);

export const unitsOfMeasure = defineResource({
  name: 'UnitOfMeasure',
  path: '/api/v1/UnitsOfMeasure',
  description: 'The units of quantities, listed by code.',
  entity: UnitOfMeasure,
  key: { id: maxInt32 },
  lookup: { property: 'code', param: 'code' },
  access: { read: 'user', write: 'settings.write' },
  orderBy: { code: 'asc' },
  search: ['code', 'name'],
  view: z.object({ Id: intId(), Code: storedCode(), Name: z.string(), CreatedAt: timestamp() }),
  create: z.object({ Code: code(), Name: text({ max: lengths.name }) }),
  fields: {
    Code: 'The code of the unit, such as `KG`. No two records have the same, in any letter case.',
    Name: 'The name of the unit, such as `Kilogram`.',
  },
  example: { Code: 'KG', Name: 'Kilogram' },
  replacement: { Code: '20', Name: 'Twenty foot container' },
  onMissing: 'unknown_record',
});
