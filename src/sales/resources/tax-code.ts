import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import {
  code,
  decimal,
  intId,
  lengths,
  maxInt32,
  storedCode,
  text,
  timestamp,
} from '../../lib/http/request/fields.ts';
import { defineResource } from './rest/define-resource.ts';

const TaxCodeSchema = defineEntity({
  name: 'TaxCode',
  tableName: 'tax_codes',
  properties: {
    id: p.integer().primary(),
    code: p.text(),
    name: p.text(),
    rate: p.decimal('number').precision(7).scale(4),
    isActive: p.boolean().default(true),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
class TaxCode extends TaxCodeSchema.class {}
TaxCodeSchema.setClass(TaxCode);

export const taxCodes = defineResource({
  name: 'TaxCode',
  path: '/api/v1/TaxCodes',
  description:
    'Tax rates of products and transactions. `Rate` is a percentage with at most four decimals.',
  entity: TaxCode,
  key: { id: maxInt32 },
  lookup: { property: 'code', param: 'code' },
  access: { read: 'user', write: 'settings.write' },
  orderBy: { code: 'asc' },
  search: ['code', 'name'],
  view: z.object({
    Id: intId(),
    Code: storedCode(),
    Name: z.string(),
    Rate: z.number().min(0).max(100),
    IsActive: z.boolean(),
    CreatedAt: timestamp(),
  }),
  create: z.object({
    Code: code(),
    Name: text({ max: lengths.name }),
    Rate: decimal({ min: 0, max: 100 }),
    IsActive: z.boolean().default(true),
  }),
  fields: {
    Code: 'The code of the rate, such as `VAT20`. No two records have the same, in any letter case.',
    Name: 'The name of the rate.',
    Rate: 'The rate in percent, with at most four decimals.',
    IsActive:
      'Whether the rate may be used for new transactions. The service stores it; your programs decide by it.',
  },
  example: { Code: 'VAT20', Name: 'Standard rate', Rate: 20, IsActive: true },
  replacement: { Code: 'STD', Name: 'Standard rate', Rate: 20, IsActive: true },
  onMissing: 'not_found',
  takesPatch: true,
});
