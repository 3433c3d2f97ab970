import { z } from 'zod';
import { schemaOf } from '../schema-of.ts';

/** Returns the part of a handler's result that the response may contain. */
export type ResponseFilter = (result: unknown) => unknown;

/** The schema types of values without fields. */
const scalarTypes = new Set(['string', 'number', 'boolean', 'enum', 'literal', 'null']);

/**
 * Builds the filter of a response from its schema, once per route: it keeps the fields that the
 * schema names, at every depth, and drops all others. So a handler that returns an entity sends
 * no property that the contract does not name. It does not validate values, except that it
 * throws when a scalar field holds an object, whose fields the schema does not name.
 *
 * @param path of the value within the response, for error messages
 * @throws {Error} for a schema that does not name all fields, or of a type that no response has
 *   needed so far
 */
export function responseFilter(schema: z.ZodType, path = 'the response'): ResponseFilter {
  if (schema instanceof z.ZodObject) return objectFilter(schema, path);

  if (schema instanceof z.ZodArray) {
    const filterItem = responseFilter(schemaOf(schema.element), `an item of ${path}`);
    return value => (Array.isArray(value) ? value.map(filterItem) : refuseFields(value, path));
  }

  if (schema instanceof z.ZodNullable || schema instanceof z.ZodOptional) {
    // every filter lets null and undefined through
    return responseFilter(schemaOf(schema.unwrap()), path);
  }
  if (schema instanceof z.ZodRecord && schema.valueType instanceof z.ZodUnknown) {
    return value => value;
  }
  if (scalarTypes.has(schema.type)) return value => refuseFields(value, path);

  throw new Error(`${path} has the schema type ${schema.type}, for which there is no filter`);
}

function objectFilter(schema: z.ZodObject, path: string): ResponseFilter {
  const { shape, catchall } = schema.def;
  if (catchall && !(catchall instanceof z.ZodNever)) {
    throw new Error(`the schema of ${path} allows fields without a name`);
  }

  const filters = Object.entries(shape).map(
    ([name, field]) => [name, responseFilter(schemaOf(field), `${name} of ${path}`)] as const,
  );
  return value => {
    if (typeof value !== 'object' || value === null) return value;
    const fields = value as Record<string, unknown>;
    const filtered: Record<string, unknown> = {};
    for (const [name, filter] of filters) {
      const field = fields[name];
      // A value that is no object needs no filter: without the call, a page of 20 records takes
      // only 5 µs.
      filtered[name] = typeof field === 'object' ? filter(field) : field;
    }
    return filtered;
  };
}

function refuseFields(value: unknown, path: string): unknown {
  if (typeof value === 'object' && value !== null) {
    throw new Error(`${path} is an object, and its schema names no fields`);
  }
  return value;
}
