import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import {
  int32,
  intId,
  lengths,
  maxInt32,
  moment,
  text,
  timestamp,
} from '../../lib/http/request/fields.ts';
import { defineResource } from './rest/define-resource.ts';

const SystemOptionSchema = defineEntity({
  name: 'SystemOption',
  tableName: 'system_options',
  properties: {
    id: p.integer().primary(),
    systemOptionTypeId: p.integer(),
    value: p.text(),
    isActive: p.boolean().default(true),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
class SystemOption extends SystemOptionSchema.class {}
SystemOptionSchema.setClass(SystemOption);

export const systemOptions = defineResource({
  name: 'SystemOption',
  path: '/api/v1/SystemOptions',
  description:
    'Settings of the company, grouped by type. A caller of scope `Self` reads them with the permission `settings.read`.',
  entity: SystemOption,
  key: { id: maxInt32 },
  access: { read: 'user', readOfSelf: 'settings.read', write: 'settings.write' },
  orderBy: { systemOptionTypeId: 'asc', id: 'asc' },
  search: ['value'],
  longTexts: ['value'],
  view: z.object({
    Id: intId(),
    SystemOptionTypeId: int32().min(1),
    Value: z.string(),
    IsActive: z.boolean(),
    CreatedAt: timestamp(),
  }),
  create: z.object({
    SystemOptionTypeId: int32().min(1),
    Value: text({ max: lengths.longText, multiline: true }),
    IsActive: z.boolean().default(true),
    CreatedAt: moment().optional(),
  }),
  fields: {
    SystemOptionTypeId:
      'The group of settings that the value belongs to. Your programs decide what the numbers ' +
      'mean.',
    Value: 'The value of the setting, as text.',
    IsActive: 'Whether the setting is in use. The service stores it; your programs decide by it.',
    CreatedAt: 'When the setting was created. A client may send an earlier time.',
  },
  example: { SystemOptionTypeId: 1, Value: 'Europe/London', IsActive: true },
  onMissing: 'unknown_record',
});
