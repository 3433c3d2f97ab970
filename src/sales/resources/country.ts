import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import { code, lengths, storedCode, text, timestamp } from '../../lib/http/request/fields.ts';
import { defineResource } from './rest/define-resource.ts';

const CountrySchema = defineEntity({
  name: 'Country',
  tableName: 'countries',
  properties: {
    countryCode: p.text().primary(),
    countryName: p.text(),
    isDeleted: p.boolean().default(false),
    deletedAt: p.datetime().nullable(),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
class Country extends CountrySchema.class {}
CountrySchema.setClass(Country);

export const countries = defineResource({
  name: 'Country',
  path: '/api/v1/Countries',
  description:
    'Countries by their code. DELETE marks a country; its code stays taken, and `undelete` brings it back. ' +
    '`includeDeleted=true` also shows marked ones.',
  entity: Country,
  key: { code: 'countryCode' },
  lookup: { property: 'countryCode', param: 'code' },
  access: { read: 'user', write: 'settings.write' },
  orderBy: { countryName: 'asc', countryCode: 'asc' },
  search: ['countryCode', 'countryName'],
  view: z.object({
    CountryCode: storedCode(),
    CountryName: z.string(),
    IsDeleted: z.boolean(),
    DeletedAt: timestamp().nullable(),
    CreatedAt: timestamp(),
  }),
  create: z.object({ CountryCode: code(), CountryName: text({ max: lengths.name }) }),
  fields: {
    CountryCode:
      'The code of the country, such as `GB` (ISO 3166-1). It never changes, and no two records have the same.',
    CountryName: 'The name of the country.',
  },
  example: { CountryCode: 'XI', CountryName: 'Northern Ireland' },
  replacement: { CountryCode: 'GB', CountryName: 'United Kingdom' },
  onMissing: 'unknown_record',
  softDelete: true,
});
