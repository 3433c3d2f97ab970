import { z } from 'zod';

/**
 * Returns a part of a schema, such as the field of an object, as a schema. The types of zod
 * know the parts of an object by a narrower type.
 * @throws {Error} for what is no schema
 */
export function schemaOf(part: unknown): z.ZodType {
  if (!(part instanceof z.ZodType)) throw new Error('no schema');
  return part;
}
