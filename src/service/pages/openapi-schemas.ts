import { z } from 'zod';
import { codeFormat, maxInt32 } from '../../lib/http/request/fields.ts';
import type { Include } from '../../lib/http/request/list-parameters/list-contract.ts';
import { schemaOf } from '../../lib/http/schema-of.ts';
import { isObject } from '../../lib/narrow.ts';
import { pascalCase } from '../../lib/runtime/casing.ts';

/** An object of a JSON document. */
export type Json = Record<string, unknown>;

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
 * The schema of a response body. Each object in it has a title: the one of its view, or else the
 * given one.
 * @param includes what the records of a list may have beside the fields of their view
 */
export function responseSchema(
  response: z.ZodType,
  title: string,
  includes: readonly Include[] = [],
): Json {
  const item = itemOf(response);
  const own = item.meta()?.title ?? title;
  if (includes.length > 0 && item instanceof z.ZodObject) {
    const extended = item.extend(
      Object.assign({}, ...includes.map(include => includedFields[include])),
    );
    return { type: 'array', items: entitle(toSchema(extended, 'output'), `${own}ListItem`) };
  }

  const schema = entitle(toSchema(item, 'output'), own);
  return item === response ? schema : { type: 'array', items: schema };
}

/** The schema of the elements of a list, or of a single response. */
export function itemOf(response: z.ZodType): z.ZodType {
  return response instanceof z.ZodArray ? schemaOf(response.element) : response;
}

/** Converts a contract to JSON Schema, in the words that OpenAPI 3.0 has as well. */
export function toSchema(schema: z.ZodType, io: 'input' | 'output'): Json {
  const { $schema, ...rest } = z.toJSONSchema(schema, {
    io,
    target: 'draft-2020-12',
    unrepresentable: 'any',
    override: ({ jsonSchema }) => {
      // long, and the format says the same
      if (jsonSchema.format === 'date-time') delete jsonSchema.pattern;
      if (jsonSchema.format === codeFormat) delete jsonSchema.format;
      // every name of a member is a text, and OpenAPI 3.0 has neither word
      delete jsonSchema.propertyNames;
      delete jsonSchema.contentEncoding;
      if (jsonSchema.type === 'integer') jsonSchema.format = integerFormat(jsonSchema);
    },
  }) as Json;

  return mapSchemas(rest, mergeNull);
}

/** `int32` if all values of an integer are in its range, else `int64`. */
function integerFormat({ minimum, maximum }: { minimum?: number; maximum?: number }): string {
  return (minimum ?? 0) >= -maxInt32 - 1 && (maximum ?? Number.POSITIVE_INFINITY) <= maxInt32
    ? 'int32'
    : 'int64';
}

/** Returns a schema after a change of each schema in it, the inner ones first. */
function mapSchemas(schema: Json, change: (schema: Json) => Json): Json {
  const mapped = { ...schema };
  const map = (inner: unknown) => (isObject(inner) ? mapSchemas(inner, change) : inner);

  for (const name of ['items', 'additionalProperties']) {
    if (mapped[name] !== undefined) mapped[name] = map(mapped[name]);
  }
  if (Array.isArray(mapped.anyOf)) mapped.anyOf = mapped.anyOf.map(map);
  if (mapped.properties) {
    mapped.properties = Object.fromEntries(
      Object.entries(mapped.properties).map(([name, property]) => [name, map(property)]),
    );
  }

  return change(mapped);
}

/** Writes *a type or null* as two types, which converts to OpenAPI 3.0, in place of `anyOf`. */
function mergeNull({ anyOf, ...rest }: Json): Json {
  if (!Array.isArray(anyOf)) return rest;

  const [value, other] = anyOf;
  const isOptional = anyOf.length === 2 && isObject(other) && other.type === 'null';
  return isOptional && isObject(value) ? { ...orNull(value), ...rest } : { ...rest, anyOf };
}

/** The schema of a value or null. */
export function orNull({ type, const: only, enum: values, anyOf, ...rest }: Json): Json {
  if (Array.isArray(anyOf)) return { ...rest, anyOf: [...anyOf, { type: 'null' }] };

  const choice = only === undefined ? values : [only];
  return {
    type: [...new Set([type, 'null'].flat())],
    ...rest,
    ...(Array.isArray(choice) && { enum: [...new Set([...choice, null])] }),
  };
}

/**
 * Returns a schema whose objects have titles, by which programs name their types. An inner one
 * without a title has that of the outer one, with the name of its property.
 */
export function entitle(schema: Json, title: string): Json {
  const { items, properties, additionalProperties: others, anyOf } = schema;
  const isOfObjects = [schema.type].flat().includes('object');
  const own = typeof schema.title === 'string' && isOfObjects ? schema.title : title;

  return {
    ...(isOfObjects && { title: own }),
    ...schema,
    ...(isObject(items) && { items: entitle(items, `${own}Item`) }),
    ...(isObject(others) && { additionalProperties: entitle(others, `${own}Value`) }),
    ...(Array.isArray(anyOf) && {
      anyOf: anyOf.map((option, place) => entitle(option, `${own}Option${place + 1}`)),
    }),
    ...(isObject(properties) && {
      properties: Object.fromEntries(
        Object.entries(properties).map(([name, property]) => [
          name,
          isObject(property) ? entitle(property, own + pascalCase(name)) : property,
        ]),
      ),
    }),
  };
}

/**
 * Replaces each object schema in a part of the document by a reference to a component of its
 * title. An object that may be null stays where it is, because a reference cannot be.
 * @param components gets the schemas
 * @throws {Error} when two different schemas have one title
 */
export function shareObjects(part: unknown, components: Map<string, Json>): unknown {
  if (Array.isArray(part)) return part.map(each => shareObjects(each, components));
  if (!isObject(part)) return part;

  const shared = Object.fromEntries(
    Object.entries(part).map(([name, value]) => [
      name,
      name === 'example' || name === 'examples' ? value : shareObjects(value, components),
    ]),
  );
  const { description, ...schema } = shared;
  const { title } = schema;
  if (schema.type !== 'object' || typeof title !== 'string') return shared;

  const known = components.get(title);
  if (known && JSON.stringify(known) !== JSON.stringify(schema)) {
    throw new Error(`two schemas have the title ${title}`);
  }
  components.set(title, schema);

  const reference = { $ref: `#/components/schemas/${title}` };
  return description === undefined ? reference : { ...reference, description };
}
