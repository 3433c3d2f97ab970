import type { z } from 'zod';
import { describeShape } from '../../../lib/http/request/fields.ts';

/** The fields that mean the same in every resource. */
const commonFields = {
  Id: 'The number of the record, which the service chooses.',
  CreatedAt:
    'When the record was created: the time at which its request began. A record appears when ' +
    'that request has ended, so it may have an earlier time than one that you have read: to ' +
    'receive new records, read `GET /api/v1/Changes`.',
  IsDeleted:
    'Whether the record is marked as deleted. Lists leave out such records, unless ' +
    '`includeDeleted` is true.',
  DeletedAt: 'When the record was marked as deleted; null if it is not.',
};

/** A description of each field that a client reads or sends. */
export type FieldDescriptions<View extends z.ZodObject, Create extends z.ZodObject> = Readonly<
  Record<Exclude<FieldOf<View> | FieldOf<Create>, keyof typeof commonFields>, string> &
    Partial<Record<keyof typeof commonFields, string>>
>;

type FieldOf<Schema extends z.ZodObject> = keyof z.input<Schema> & string;

/** Returns the view or the contract of a resource with the descriptions of its fields. */
export function describeContract(
  schema: z.ZodObject,
  fields: Readonly<Record<string, string>>,
): z.ZodObject {
  return schema.extend(describeShape(schema.shape, { ...commonFields, ...fields }));
}
