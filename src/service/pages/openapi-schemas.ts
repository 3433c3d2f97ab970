import { z } from 'zod';
import { codeFormat } from '../../lib/http/request/fields.ts';
import type { Include } from '../../lib/http/request/list-parameters/list-contract.ts';
import { schemaOf } from '../../lib/http/schema-of.ts';
import type { TenantRoute } from '../../tenancy/define-route.ts';

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

const includedFields: Record<Include, z.ZodRawShape> = {
  etag: { ETag: z.string().optional().describe('The `ETag` of the record, with `include=etag`.') },
  user: {
    UserName: z
      .string()
      .nullable()
      .optional()
      .describe('The name of the user, with `include=user`.'),
  },
};

/**
 * The schema of a response body; a view that has a title is referenced by it.
 * @param includes what the records of a list may have beside the fields of their view
 */
export function responseSchema(response: z.ZodType, includes: readonly Include[] = []): Json {
  const item = itemOf(response);
  if (includes.length > 0 && item instanceof z.ZodObject) {
    const extended = item.extend(
      Object.assign({}, ...includes.map(include => includedFields[include])),
    );
    return { type: 'array', items: toSchema(extended, 'output') };
  }
  const name = item.meta()?.title;
  const schema = name ? { $ref: `#/components/schemas/${name}` } : toSchema(item, 'output');
  return item === response ? schema : { type: 'array', items: schema };
}

/** The schema of the elements of a list, or of a single response. */
export function itemOf(response: z.ZodType): z.ZodType {
  return response instanceof z.ZodArray ? schemaOf(response.element) : response;
}

/** Converts a contract to JSON Schema. */
export function toSchema(schema: z.ZodType, io: 'input' | 'output'): Json {
  const { $schema, ...rest } = z.toJSONSchema(schema, {
    io,
    target: 'draft-2020-12',
    unrepresentable: 'any',
    override: ({ jsonSchema }) => {
      // long, and the format says the same
      if (jsonSchema.format === 'date-time') delete jsonSchema.pattern;
      if (jsonSchema.format === codeFormat) delete jsonSchema.format;
    },
  }) as Json;
  return rest;
}
