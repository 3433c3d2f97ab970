import { z } from 'zod';
import type { TenantRoute } from '../tenancy/define-route.ts';

/** An object of a JSON document. */
export type Json = Record<string, unknown>;

/** The schemas of the response views that have a title, by that title. */
export function namedSchemas(routes: readonly TenantRoute[]): Json {
  const items = routes.flatMap(({ response }) => (response ? [itemOf(response)] : []));
  const named = items.flatMap(item => {
    const name = item.meta()?.title;
    return name ? [[name, toSchema(item, 'output')] as const] : [];
  });
  return Object.fromEntries(named);
}

/** The schema of a response body; a view that has a title is referenced by it. */
export function responseSchema(response: z.ZodType): Json {
  const item = itemOf(response);
  const name = item.meta()?.title;
  const schema = name ? { $ref: `#/components/schemas/${name}` } : toSchema(item, 'output');
  return item === response ? schema : { type: 'array', items: schema };
}

/** The schema of the elements of a list, or of a single response. */
export function itemOf(response: z.ZodType): z.ZodType {
  return response instanceof z.ZodArray ? (response.element as z.ZodType) : response;
}

/** Converts a contract to JSON Schema. */
export function toSchema(schema: z.ZodType, io: 'input' | 'output'): Json {
  const { $schema, ...rest } = z.toJSONSchema(schema, {
    io,
    target: 'draft-2020-12',
    unrepresentable: 'any',
    override: ({ jsonSchema }) => {
      if (jsonSchema.format === 'date-time') delete jsonSchema.pattern; // long, and the format says the same
    },
  }) as Json;
  return rest;
}
