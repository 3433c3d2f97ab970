import { z } from 'zod';
import type { TenantRoute } from '../tenancy/define-route.ts';
import { itemOf, type Json, toSchema } from './openapi-schemas.ts';

/** An example of a response, made from its schema, and from the example of the request that creates such a record. */
export function responseExample(response: z.ZodType, routes: readonly TenantRoute[]): unknown {
  const item = itemOf(response);
  const example = exampleOf(toSchema(item, 'output'), '', createdAs(item, routes));
  return response instanceof z.ZodArray ? [example] : example;
}

/** The example body of the route that creates records with this view. */
function createdAs(view: z.ZodType, routes: readonly TenantRoute[]): Json {
  const title = view.meta()?.title;
  const creates = ({ status, response }: TenantRoute): boolean => status === 201 && response?.meta()?.title === title;
  return (title && (routes.find(creates)?.example as Json | undefined)) || {};
}

/**
 * Returns a value that a JSON Schema accepts.
 * @param name of the property, which chooses a value that says more than the schema
 * @param known values of properties
 */
function exampleOf(schema: Json, name: string, known: Json = {}): unknown {
  if (name in known) return known[name];
  if (name in examples) return examples[name];
  if ('const' in schema) return schema.const;
  if (Array.isArray(schema.enum)) return schema.enum[0];
  if (isNullable(schema)) return null;
  const { type, format, properties, items } = schema;
  if (type === 'object')
    return Object.fromEntries(
      Object.entries((properties ?? {}) as Record<string, Json>).map(([key, property]) => [
        key,
        exampleOf(property, key, known),
      ]),
    );
  if (type === 'array') return items === undefined ? [] : [exampleOf(items as Json, '')];
  if (type === 'integer' || type === 'number') return 1;
  if (type === 'boolean') return false;
  if (format === 'date-time') return time;
  return format === 'uuid' ? guid : `the ${name}`;
}

function isNullable({ type, anyOf }: Json): boolean {
  if (Array.isArray(type)) return type.includes('null');
  return Array.isArray(anyOf) && anyOf.some(option => (option as Json).type === 'null');
}

const time = '2026-01-05T09:30:00.000Z';
const guid = '3f0f8c9e-6c1d-4c53-9d2a-0c7b1f6a5e21';

/** Values of properties for which the type alone would give a misleading one. */
const examples: Json = {
  accessToken: 'the access token, a JWT',
  refreshToken: 'the refresh token',
  tokenId: guid,
  userGuid: guid,
  tenantGuid: guid,
  id: guid,
  firstName: 'Nora',
  lastName: 'Newman',
  tenantName: 'Demo Ltd',
  appId: 'demo',
  role: 'Member',
  scope: 'All',
  permissions: ['full.read'],
  features: ['legacyTokens'],
  current: true,
  ConfirmedAt: time,
  StatusTitle: 'Active',
  IsActive: true,
  Used: true,
  UsedAt: time,
  Resource: 'Country',
  Key: 'GB',
  After: { CountryCode: 'GB', CountryName: 'United Kingdom' },
};
