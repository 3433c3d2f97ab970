import { z } from 'zod';
import { type ProblemCode, problems } from '../errors.ts';
import { problemBody } from '../http/problem-details.ts';
import { fieldErrorCodes } from '../runtime/field-error.ts';
import type { TenantRoute } from '../tenancy/define-route.ts';
import type { Json } from './openapi-schemas.ts';

/** Every status that a problem of a documented route can have. */
const problemStatuses = [400, 401, 403, 404, 409, 410, 412, 413, 415, 422, 429, 500, 503] as const;
type ProblemStatus = (typeof problemStatuses)[number];

/** The problems that a route can respond with, as references to shared responses. */
export function problemReferences(route: TenantRoute): Json {
  const statuses = problemStatuses.filter(status => canFailWith(status, route));
  return Object.fromEntries(statuses.map(status => [status, { $ref: `#/components/responses/Problem${status}` }]));
}

function canFailWith(status: ProblemStatus, route: TenantRoute): boolean {
  const { access, body, query, path, method, response, cache } = route;
  const takesInput = body !== undefined || query !== undefined || method !== 'GET';
  // A complete list of reference data responds with 404 when it is empty. Other lists are then `[]`.
  const isCompleteList = response instanceof z.ZodArray && cache === 'revalidate' && query?.shape.limit === undefined;
  if (status === 400) return takesInput || access !== 'anonymous';
  if (status === 410) return access !== 'anonymous'; // legacy tokens that are switched off
  if (status === 409 || status === 422) return route.takesIdempotencyKey === true;
  if (status === 412) return route.takesIfMatch === true;
  if (status === 413 || status === 415) return body !== undefined || route.upload !== undefined;
  if (status === 404) return path.includes(':') || isCompleteList;
  return true;
}

/** The responses that `problemReferences` refers to. */
export function problemResponses(): Json {
  return Object.fromEntries(problemStatuses.map(status => [`Problem${status}`, problemResponse(status)]));
}

/** The response of one status, with the codes that it can carry. */
function problemResponse(status: ProblemStatus): Json {
  const codes = (Object.keys(problems) as ProblemCode[]).filter(code => problems[code].status === status);
  const [code = 'internal_error'] = codes;
  const narrowed = { properties: { status: { const: status }, code: { enum: codes } } };
  const example = {
    ...problemBody(code, '0f7c1d3e-5b7a-4c59-9d0e-6a1f2b3c4d5e'),
    ...(code === 'validation_failed'
      ? { errors: { CountryName: ['is required'] }, errorCodes: { CountryName: [{ code: 'required' }] } }
      : {}),
  };
  const schema = { allOf: [{ $ref: '#/components/schemas/Problem' }, narrowed] };
  return {
    description: codes.map(code => `\`${code}\`: ${problems[code].title}`).join('  \n'),
    headers: { 'X-Request-Id': { $ref: '#/components/headers/RequestId' }, ...problemHeaders[status] },
    content: { 'application/problem+json': { schema, example } },
  };
}

const problemHeaders: Partial<Record<ProblemStatus, Json>> = {
  401: { 'WWW-Authenticate': { $ref: '#/components/headers/WWWAuthenticate' } },
  403: { 'WWW-Authenticate': { $ref: '#/components/headers/WWWAuthenticate' } },
  409: { 'Retry-After': { $ref: '#/components/headers/RetryAfter' } },
  429: { 'Retry-After': { $ref: '#/components/headers/RetryAfter' } },
  503: { 'Retry-After': { $ref: '#/components/headers/RetryAfter' } },
};

/** The members of a problem document. */
export const problemSchema = {
  type: 'object',
  description: 'Problem details (RFC 9457).',
  required: ['type', 'title', 'status', 'code', 'traceId'],
  additionalProperties: false,
  properties: {
    type: { type: 'string', format: 'uri-reference', description: 'The page that explains the code.' },
    title: { type: 'string', description: 'The problem in a few words. The text may change.' },
    status: { type: 'integer', description: 'The status of the response.' },
    code: { type: 'string', enum: Object.keys(problems), description: 'What is wrong. A code keeps its meaning.' },
    traceId: { type: 'string', format: 'uuid', description: 'The `X-Request-Id`. Report it with the problem.' },
    detail: { type: 'string', description: 'What is wrong with this request, as text that may change.' },
    errors: {
      type: 'object',
      description: 'What is wrong, by field name.',
      additionalProperties: { type: 'array', items: { type: 'string' } },
    },
    errorCodes: {
      type: 'object',
      description:
        'The same as `errors`, for programs: a code for each text, with the numbers or values that it names.',
      additionalProperties: {
        type: 'array',
        items: {
          type: 'object',
          required: ['code'],
          additionalProperties: false,
          properties: {
            code: { type: 'string', enum: fieldErrorCodes, description: 'What is wrong with the field.' },
            min: { type: 'number', description: 'The least value or length that is accepted.' },
            max: { type: 'number', description: 'The greatest value or length that is accepted.' },
            expected: { type: 'string', description: 'The type that is accepted.' },
            values: { type: 'array', items: { type: 'string' }, description: 'The values that are accepted.' },
            deleted: { type: 'boolean', description: 'Whether the record with this code is marked as deleted.' },
          },
        },
      },
    },
  },
};
