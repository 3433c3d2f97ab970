import { z } from 'zod';
import { type ProblemCode, problems } from '../errors.ts';
import { problemBody } from '../http/problem-details.ts';
import type { TenantRoute } from '../tenancy/define-route.ts';
import { answerSchema, type Json } from './openapi-schemas.ts';

/** What a success answers with, by status. */
export function success({ status, response, cache, mayBeEmpty }: TenantRoute): Json {
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

/** Headers that answers refer to by name. */
export const headers = {
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

/** Every status that a problem of the API can have. */
export const statuses = [400, 401, 403, 404, 410, 413, 415, 429, 500, 503] as const;

/** The statuses of the problems that can come of a route. */
export function failures(route: TenantRoute): (typeof statuses)[number][] {
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

/** The members of a problem document. */
export const problemSchema = {
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
export function problemResponse(status: (typeof statuses)[number]): Json {
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
