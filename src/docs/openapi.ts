import { z } from 'zod';
import { type ProblemCode, problems } from '../errors.ts';
import { problemBody } from '../http/problem-details.ts';
import type { TenantRoute } from '../tenancy/define-route.ts';

type Json = Record<string, unknown>;

const version = '1.0.0';

/** The document as it is served and printed. */
export function writeDocument(routes: readonly TenantRoute[]): string {
  return `${JSON.stringify(openApiDocument(routes), null, 2)}\n`;
}

/** An OpenAPI 3.1 document, made from the routes that are mounted: what it says is what is served. */
export function openApiDocument(routes: readonly TenantRoute[]): Json {
  const paths: Record<string, Json> = {};
  for (const route of routes) {
    const path = route.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(route) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Sales back office',
      version,
      description:
        'Reference data, activities and audit log of companies, each with a database of its own. See [the guide](/docs).',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/' }],
    security: [{ bearer: [] }],
    tags: [...new Set(routes.map(route => route.tag))].map(name => ({ name })),
    paths,
    components: {
      securitySchemes: {
        bearer: {
          type: 'http',
          scheme: 'bearer',
          bearerFormat: 'JWT',
          description: 'The `accessToken` that login or refresh answers with.',
        },
        basic: { type: 'http', scheme: 'basic', description: 'The id and the secret of an API client.' },
      },
      schemas: { ...namedSchemas(routes), Problem: problemSchema },
      headers,
      responses: Object.fromEntries(statuses.map(status => [`Problem${status}`, problemResponse(status)])),
    },
  };
}

function operation(route: TenantRoute): Json {
  const caller = callers[route.access];
  return {
    operationId: operationId(route),
    tags: [route.tag],
    summary: route.summary,
    description: [route.description, caller?.needs ?? `Needs a token with the permission \`${route.access}\`.`]
      .filter(Boolean)
      .join('\n\n'),
    ...(caller?.security ? { security: caller.security } : {}),
    ...(caller ? {} : { 'x-permission': route.access }),
    parameters: [...tenantHeader(route), ...pathParameters(route), ...queryParameters(route)],
    ...requestBody(route),
    responses: {
      ...success(route),
      ...Object.fromEntries(
        failures(route).map(status => [status, { $ref: `#/components/responses/Problem${status}` }]),
      ),
    },
  };
}

/** Who may call, in words; any other access is the name of a permission. */
const callers: Record<string, { needs: string; security?: Json[] }> = {
  anonymous: { needs: 'Needs no token, but `X-Tenant`.', security: [] },
  optional: { needs: 'Needs `X-Tenant`, or a token.', security: [{}, { bearer: [] }] },
  client: { needs: 'Needs the id and the secret of an API client.', security: [{ basic: [] }] },
  user: { needs: 'Needs a token.' },
};

/** `GET /api/v1/Countries/code/{code}` → `getCountriesCodeByCode`. */
function operationId({ method, path }: TenantRoute): string {
  const words = path.replace(/^\/api\/(v1\/)?/, '').split(/[/-]/);
  const named = words.map(word => (word.startsWith(':') ? `By${capital(word.slice(1))}` : capital(word)));
  return method.toLowerCase() + named.join('');
}

function capital(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

function tenantHeader({ access }: TenantRoute): Json[] {
  const security = callers[access]?.security;
  if (security === undefined || security.some(scheme => 'basic' in scheme)) return [];
  const schema = { type: 'string', format: 'uuid' };
  const required = security.length === 0;
  return [{ name: 'X-Tenant', in: 'header', required, description: 'The guid of the tenant.', schema }];
}

function pathParameters({ path }: TenantRoute): Json[] {
  return [...path.matchAll(/:(\w+)/g)].map(([, name = '']) => ({
    name,
    in: 'path',
    required: true,
    description: pathDescriptions[name] ?? name,
    schema: pathSchema(name, path),
  }));
}

function pathSchema(name: string, path: string): Json {
  if (/code$/i.test(name)) return { type: 'string' };
  return path.includes('/sessions/') ? { type: 'string', format: 'uuid' } : { type: 'integer', minimum: 1 };
}

const pathDescriptions: Record<string, string> = {
  id: 'The id of the record.',
  entityId: 'The id of an entity.',
  code: 'The code of the record, in any letter case.',
  promoCode: 'The promo code, in any letter case.',
};

const parameterDescriptions: Record<string, string> = {
  limit: 'How many records at most: 1 or more, 20 unless given. More than 1,000 counts as 1,000.',
  after: 'Only records after this id: the last one of the page before.',
  includeDeleted: 'Whether records marked as deleted are shown.',
  userId: 'Only of this user.',
  entityId: 'Only of this entity.',
  resource: 'Only of this resource, such as `Country`.',
  key: 'Only of the record with this id or code.',
};

/** What a parameter stands for once read, since a query string itself has no numbers. */
function queryParameters({ query }: TenantRoute): Json[] {
  return Object.entries(query?.shape ?? {}).map(([name, field]) => {
    const { data: fallback } = (field as z.ZodType).safeParse(undefined); // what the handler gets when it is not sent
    const type = typeof fallback === 'boolean' ? 'boolean' : /^(limit|after|.*Id)$/.test(name) ? 'integer' : 'string';
    const schema = {
      type,
      ...(type === 'integer' ? { minimum: 1 } : {}),
      ...(fallback === undefined ? {} : { default: fallback }),
    };
    return { name, in: 'query', required: false, description: parameterDescriptions[name] ?? name, schema };
  });
}

function requestBody({ body, example }: TenantRoute): Json {
  if (!body) return {};
  const content = { schema: toSchema(body, 'input'), ...(example ? { example } : {}) };
  return { requestBody: { required: true, content: { 'application/json': content } } };
}

function success({ status, response, cache, mayBeEmpty }: TenantRoute): Json {
  const common = { 'X-Request-Id': { $ref: '#/components/headers/RequestId' } };
  if (!response || status === 204) return { [status]: { description: 'Done; no body.', headers: common } };
  const etag = { ETag: { $ref: '#/components/headers/ETag' } };
  const headers = {
    ...common,
    ...(status === 201 ? { Location: { $ref: '#/components/headers/Location' } } : {}),
    ...(cache === 'revalidate' ? etag : {}),
  };
  const content = { 'application/json': { schema: answerSchema(response) } };
  const answers = { [status]: { description: status === 201 ? 'Created.' : 'The answer.', headers, content } };
  const unchanged = { description: 'What `If-None-Match` names is current; no body.', headers: { ...common, ...etag } };
  if (mayBeEmpty) return { ...answers, 204: { description: 'Done; no body.', headers: common } };
  return cache === 'revalidate' ? { ...answers, 304: unchanged } : answers;
}

const headers = {
  RequestId: {
    description: 'The id of this request, also the `traceId` of a problem.',
    schema: { type: 'string', format: 'uuid' },
  },
  Location: {
    description: 'The path at which the new record is read.',
    schema: { type: 'string', format: 'uri-reference' },
  },
  ETag: { description: 'To be sent back as `If-None-Match`.', schema: { type: 'string' } },
  RetryAfter: { description: 'How many seconds to wait.', schema: { type: 'integer', minimum: 1 } },
  WWWAuthenticate: { description: 'What is wrong with the token, or missing.', schema: { type: 'string' } },
};

const statuses = [400, 401, 403, 404, 410, 413, 415, 429, 500, 503] as const;

function failures(route: TenantRoute): (typeof statuses)[number][] {
  const { access, body, query, path, method, response, cache } = route;
  const takesInput = body !== undefined || query !== undefined || method !== 'GET';
  // A whole list of reference data is not found when it is empty; others are just empty.
  const isWholeList = response instanceof z.ZodArray && cache === 'revalidate' && query?.shape.limit === undefined;
  return statuses.filter(status => {
    if (status === 400) return takesInput || access !== 'anonymous';
    if (status === 410) return access !== 'anonymous'; // the tokens of old clients
    if (status === 413 || status === 415) return body !== undefined;
    if (status === 404) return path.includes(':') || isWholeList;
    return true;
  });
}

const problemSchema = {
  type: 'object',
  description: 'RFC 9457 problem details.',
  required: ['type', 'title', 'status', 'code', 'traceId'],
  additionalProperties: false,
  properties: {
    type: { type: 'string', format: 'uri-reference' },
    title: { type: 'string' },
    status: { type: 'integer' },
    code: { type: 'string', enum: Object.keys(problems) },
    traceId: { type: 'string', format: 'uuid' },
    detail: { type: 'string' },
    errors: {
      type: 'object',
      description: 'What is wrong, by the name of the field.',
      additionalProperties: { type: 'array', items: { type: 'string' } },
    },
  },
};

/** The problem of one status, with the codes it can carry. */
function problemResponse(status: (typeof statuses)[number]): Json {
  const codes = (Object.keys(problems) as ProblemCode[]).filter(code => problems[code].status === status);
  const [code = 'internal_error'] = codes;
  const narrowed = { properties: { status: { const: status }, code: { enum: codes } } };
  const example = {
    ...problemBody(code, '0f7c1d3e-5b7a-4c59-9d0e-6a1f2b3c4d5e'),
    ...(code === 'validation_failed' ? { errors: { CountryName: ['is required'] } } : {}),
  };
  const schema = { allOf: [{ $ref: '#/components/schemas/Problem' }, narrowed] };
  return {
    description: codes.map(code => `\`${code}\`: ${problems[code].title}`).join('  \n'),
    headers: { 'X-Request-Id': { $ref: '#/components/headers/RequestId' }, ...problemHeaders[status] },
    content: { 'application/problem+json': { schema, example } },
  };
}

const problemHeaders: Record<number, Json> = {
  401: { 'WWW-Authenticate': { $ref: '#/components/headers/WWWAuthenticate' } },
  403: { 'WWW-Authenticate': { $ref: '#/components/headers/WWWAuthenticate' } },
  429: { 'Retry-After': { $ref: '#/components/headers/RetryAfter' } },
  503: { 'Retry-After': { $ref: '#/components/headers/RetryAfter' } },
};

/** What answers hold that has a name of its own: the title of its schema. */
function namedSchemas(routes: readonly TenantRoute[]): Json {
  const items = routes.flatMap(({ response }) => (response ? [itemOf(response)] : []));
  const named = items.flatMap(item => {
    const name = item.meta()?.title;
    return name ? [[name, toSchema(item, 'output')] as const] : [];
  });
  return Object.fromEntries(named);
}

function answerSchema(response: z.ZodType): Json {
  const item = itemOf(response);
  const name = item.meta()?.title;
  const schema = name ? { $ref: `#/components/schemas/${name}` } : toSchema(item, 'output');
  return item === response ? schema : { type: 'array', items: schema };
}

function itemOf(response: z.ZodType): z.ZodType {
  return response instanceof z.ZodArray ? (response.element as z.ZodType) : response;
}

function toSchema(schema: z.ZodType, io: 'input' | 'output'): Json {
  const { $schema, ...rest } = z.toJSONSchema(schema, {
    io,
    target: 'draft-2020-12',
    unrepresentable: 'any',
    override: ({ jsonSchema }) => {
      if (jsonSchema.format === 'date-time') delete jsonSchema.pattern; // the format says it in a word
    },
  }) as Json;
  return rest;
}
