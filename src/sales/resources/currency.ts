import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import {
  int32,
  intId,
  lengths,
  maxInt32,
  optionalText,
  storedCode,
  text,
  timestamp,
} from '../../lib/http/request/fields.ts';
import { defineResource } from './rest/define-resource.ts';

const CurrencySchema = defineEntity({
  name: 'Currency',
  tableName: 'currencies',
  properties: {
    id: p.integer().primary(),
    code: p.text(),
    name: p.text(),
    symbol: p.text().nullable(),
    decimalPlaces: p.integer().default(2),
    isDeleted: p.boolean().default(false),
    deletedAt: p.datetime().nullable(),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
class Currency extends CurrencySchema.class {}
CurrencySchema.setClass(Currency);

export const currencies = defineResource({
  name: 'Currency',
  path: '/api/v1/Currency',
  description:
    'Currencies by their ISO 4217 code. DELETE marks a currency; its code stays taken, and `undelete` brings it back. ' +
    '`includeDeleted=true` also shows marked ones.',
  entity: Currency,
  key: { id: maxInt32 },
  unique: 'code',
  access: { read: 'user', write: 'settings.write' },
  orderBy: { code: 'asc' },
  search: ['code', 'name'],
  view: z.object({
    Id: intId(),
    Code: storedCode(),
    Name: z.string(),
    Symbol: z.string().nullable(),
    DecimalPlaces: int32().min(0).max(6),
    IsDeleted: z.boolean(),
    DeletedAt: timestamp().nullable(),
    CreatedAt: timestamp(),
  }),
  create: z.object({
    Code: text({ max: 3 }).regex(/^[A-Z]{3}$/, 'must be three capital letters (ISO 4217)'),
    Name: text({ max: lengths.name }),
    Symbol: optionalText({ max: lengths.code }).nullable().default(null),
    DecimalPlaces: int32().min(0).max(6).default(2),
  }),
  fields: {
    Code: 'The code of the currency, such as `EUR` (ISO 4217). No two records have the same.',
    Name: 'The name of the currency.',
    Symbol: 'The sign before or after an amount, such as `€`; null if there is none.',
    DecimalPlaces:
      'The number of decimals of an amount, such as 2 for euros and cents. `Intl` of JavaScript shows other decimals ' +
      'for some currencies, such as none for HUF, IDR and PKR: pass this number as `minimumFractionDigits` and ' +
      '`maximumFractionDigits`.',
  },
  example: { Code: 'XBT', Name: 'Bitcoin', Symbol: '₿', DecimalPlaces: 6 },
  replacement: { Code: 'AED', Name: 'United Arab Emirates Dirham', DecimalPlaces: 2 },
  onMissing: 'not_found',
  takesPatch: true,
  softDelete: true,
});
