import { z } from 'zod';
import { maxInt32 } from '../../lib/http/request/fields.ts';
import type { CsvContract } from '../../lib/http/route.ts';
import { schemaOf } from '../../lib/http/schema-of.ts';
import type { TenantRoute } from '../../tenancy/define-route.ts';
import { isJson, mediaTypeOf } from './media-types.ts';
import { itemOf, type Json, responseSchema, toSchema } from './openapi-schemas.ts';

/**
 * The responses of a route that are not problems, by status. 304 counts as one of them.
 * @param title of a body whose view has none
 * @param routes all routes, for examples of records
 */
export function successResponses(
  route: TenantRoute,
  title: string,
  routes: readonly TenantRoute[],
): Json {
  const { status, response, contentType = 'application/json', cache, mayBeEmpty, list } = route;
  if (!response || status === 204) return { [status]: responseReference('NoContent') };

  const csv = route.csv ?? (list && { columns: list.columns, description: listAsCsv });
  const headers = headerReferences(
    ...(status === 201 || route.location ? ['Location'] : []),
    ...(cache === 'revalidate' || route.hasTag ? ['ETag'] : []),
    ...(list ? ['Link', 'Content-Range', 'Preference-Applied'] : []),
    ...(csv ? ['Content-Disposition'] : []),
    ...(route.hasCursor ? ['Link', 'Next-Cursor'] : []),
    ...(route.takesIdempotencyKey ? ['Idempotency-Replayed'] : []),
  );

  const example = isJson(contentType)
    ? responseExample(response, routes)
    : eventExample(route, routes);
  const content = {
    [mediaTypeOf(contentType)]: {
      schema: responseSchema(response, title, list?.includes),
      ...(example !== undefined && { example }),
    },
  };

  const description = status === 201 ? 'Created.' : 'Success.';
  const success = { [status]: { description, headers, content, ...(csv && csvContent(csv)) } };

  if (mayBeEmpty) return { ...success, 204: responseReference('NoContent') };
  return cache === 'revalidate' ? { ...success, 304: responseReference('NotModified') } : success;
}

const responseReference = (name: string): Json => ({ $ref: `#/components/responses/${name}` });

/**
 * The headers of a response, beside those that every response has, as references to
 * `responseHeaders`.
 */
export function headerReferences(...names: string[]): Json {
  const all = [
    'X-Request-Id',
    'RateLimit',
    'RateLimit-Policy',
    'RateLimit-Limit',
    'RateLimit-Remaining',
    'RateLimit-Reset',
    ...names,
  ];
  return Object.fromEntries(
    all.map(name => [name, { $ref: `#/components/headers/${name.replace(/^X-|-/g, '')}` }]),
  );
}

/** The responses without a body, which all routes share. */
export const emptyResponses = {
  NoContent: { description: 'Success, without a body.', headers: headerReferences() },
  NotModified: {
    description: 'The representation that `If-None-Match` names is current. No body.',
    headers: headerReferences('ETag', 'Link', 'Content-Range', 'Preference-Applied'),
  },
};

const listAsCsv =
  'All records that the filters match: a header with the names of the fields, then a row for each.';

/**
 * A response as CSV, for `Accept: text/csv`. It stands beside `content`: with a second media
 * type in `content`, generated clients type each list as *a list or a text*, and no program
 * that reads a list compiles.
 */
function csvContent({ columns, description }: CsvContract): Json {
  return {
    'x-other-content': {
      'text/csv': { schema: { type: 'string', description }, example: `${columns.join(',')}\r\n` },
    },
  };
}

const number = { type: 'integer', format: 'int32', minimum: 0, maximum: maxInt32 };

/** The headers of responses, by their names without hyphens and `X-`. */
export const responseHeaders = {
  RequestId: {
    description: 'The id of this request. A problem repeats it as `traceId`.',
    schema: { type: 'string', format: 'uuid' },
  },
  Location: {
    description:
      'The address of the new record; its path alone if the request came to another host than that of the service.',
    schema: { type: 'string', format: 'uri-reference' },
  },
  ETag: {
    description: 'Send it back as `If-None-Match` of a read, or as `If-Match` of a change.',
    schema: { type: 'string' },
  },
  Link: {
    description:
      'The address of the next page, with `rel="next"`; its path alone if the request came to another host than that of ' +
      'the service. Of a list that has more records, if the request has a parameter ' +
      'that the plain list does not have.',
    schema: { type: 'string' },
  },
  NextCursor: {
    description:
      'The place after the page, also after an empty one: send it as `after`, now or later.',
    schema: { type: 'string' },
  },
  ContentRange: {
    description:
      'With `Prefer: count=exact`: the places of the records in the list, and the number of all, such as `items 0-19/57`. The ' +
      'places are `*` after a cursor. The number is `*` above 100,000, and where counting takes more than a second.',
    schema: { type: 'string' },
  },
  RateLimit: {
    description:
      'Of each limit that counts the request: its name, the number of requests that are left (`r`), and the number of ' +
      'seconds until more are left (`t`), such as `"Global";r=499;t=60, "Login";r=4;t=900`.',
    schema: { type: 'string' },
  },
  RateLimitPolicy: {
    description:
      'Of each limit that counts the request: its name, the number of requests that it allows (`q`), and the number of ' +
      'seconds in which it allows them (`w`), such as `"Global";q=500;w=60, "Login";q=5;w=900`.',
    schema: { type: 'string' },
  },
  RateLimitLimit: {
    description: 'The number of requests that the client may send in a period.',
    schema: number,
  },
  RateLimitRemaining: {
    description: 'The number that is left of them.',
    schema: number,
  },
  RateLimitReset: {
    description: 'The number of seconds until more are left.',
    schema: number,
  },
  IdempotencyReplayed: {
    description:
      '`true` if an earlier request with the same `Idempotency-Key` has made the change.',
    schema: { type: 'string', enum: ['true'] },
  },
  PreferenceApplied: {
    description: 'The part of `Prefer` that was followed.',
    schema: { type: 'string' },
  },
  ContentDisposition: { description: 'Of CSV: the name of the file.', schema: { type: 'string' } },
  AcceptPatch: {
    description: 'Of `PATCH`: the media type of its body.',
    schema: { type: 'string' },
  },
  RetryAfter: {
    description: 'The number of seconds to wait.',
    schema: { ...number, minimum: 1 },
  },
  WWWAuthenticate: {
    description: 'What is missing or wrong in the credentials.',
    schema: { type: 'string' },
  },
};

/**
 * An example of a response, made from its schema, and from the example of the request that
 * creates such a record.
 */
function responseExample(response: z.ZodType, routes: readonly TenantRoute[]): unknown {
  const item = itemOf(response);
  const example = exampleOf(toSchema(item, 'output'), '', createdAs(item, routes));
  return response instanceof z.ZodArray ? [example] : example;
}

/**
 * An example of a field of a view, such as one that a path names.
 * @param routes all routes, among them the one that creates such records
 */
export function exampleOfField(
  view: z.ZodObject,
  name: string,
  routes: readonly TenantRoute[],
): unknown {
  return exampleOf(toSchema(schemaOf(view.shape[name]), 'output'), name, createdAs(view, routes));
}

/** An example of a stream: an event of the first record that the list beside it has. */
function eventExample(route: TenantRoute, routes: readonly TenantRoute[]): string | undefined {
  const list = routes.find(({ path }) => `${path}/stream` === route.path);
  if (!list?.response) return undefined;

  const [change] = responseExample(list.response, routes) as Json[];
  return `id: ${change?.Id}\ndata: ${JSON.stringify(change)}\n\n`;
}

/** The example body of the route that creates records with this view. */
function createdAs(view: z.ZodType, routes: readonly TenantRoute[]): Json {
  const title = view.meta()?.title;
  const creates = ({ status, response }: TenantRoute): boolean =>
    status === 201 && response?.meta()?.title === title;
  return (title && (routes.find(creates)?.example as Json | undefined)) || {};
}

/**
 * Returns a value that a JSON Schema accepts.
 * @param name of the property, by which a value is chosen that says more than the schema
 * @param known values of properties
 */
function exampleOf(schema: Json, name: string, known: Json = {}): unknown {
  if (name in known) return known[name];
  if (name in examples && schema.type !== 'integer') return examples[name];
  if ('const' in schema) return schema.const;
  if (isNullable(schema)) return null;
  if (Array.isArray(schema.enum)) return schema.enum[0];

  const { type, format, properties, required, items } = schema;
  if (type === 'object') {
    return Object.fromEntries(
      Object.entries((properties ?? {}) as Record<string, Json>)
        .filter(([key]) => !Array.isArray(required) || required.includes(key))
        .map(([key, property]) => [key, exampleOf(property, key, known)]),
    );
  }
  if (type === 'array') return items === undefined ? [] : [exampleOf(items as Json, '')];
  if (type === 'integer' || type === 'number') return 1;
  if (type === 'boolean') return false;
  if (format === 'date-time') return time;
  if (format === 'uuid') return guid;

  return name === 'Id' ? cursor : `the ${name}`;
}

function isNullable({ type }: Json): boolean {
  return Array.isArray(type) && type.includes('null');
}

const time = '2026-01-05T09:30:00.000Z';
const guid = '3f0f8c9e-6c1d-4c53-9d2a-0c7b1f6a5e21';
/** The only id that is a text: that of a change. */
const cursor = 'mihq2bwc-mihq2bwc-5k1-1-2c-hmsx3t9q0w-0k7d2x';

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
  EventId: 'evt_mihq2bwc-5k1-1-2c-hmsx3t9q0w',
  Type: 'country.created',
  Fields: [],
  Href: '/api/v1/Countries/code/GB',
  MessageId: `msg_${guid}`,
  Url: 'https://hooks.example.com/changes',
  Secret: 'whsec_…',
  Field: 'CountryName',
  Reason: 'is required',
  After: { CountryCode: 'GB', CountryName: 'United Kingdom' },
};
