import { z } from 'zod';

/** Returns an object schema with a description of each of its fields. The compiler finds a field that has none. */
export function describeFields<Shape extends z.ZodRawShape>(
  shape: Shape,
  descriptions: { readonly [Field in keyof Shape]: string },
): z.ZodObject<Shape> {
  return z.object(describeShape(shape, descriptions) as Shape);
}

/** Returns the fields of a schema with their descriptions. A description of another field is ignored. */
export function describeShape(shape: z.ZodRawShape, descriptions: Readonly<Record<string, string>>): z.ZodRawShape {
  const described = Object.entries(shape).map(([name, field]) => {
    const description = descriptions[name];
    return [name, description === undefined ? field : (field as z.ZodType).describe(description)];
  });
  return Object.fromEntries(described);
}
