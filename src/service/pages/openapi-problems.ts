import { z } from 'zod';
import { maxInt32 } from '../../lib/http/request/fields.ts';
import { problemBody } from '../../lib/http/steps/problem-details.ts';
import { type ProblemCode, problemCodes, problems } from '../../lib/problems.ts';
import { pascalCase } from '../../lib/runtime/casing.ts';
import { fieldErrorCodes } from '../../lib/runtime/field-error.ts';
import { requiredPermission, type TenantRoute } from '../../tenancy/define-route.ts';
import { headerReferences } from './openapi-responses.ts';
import type { Json } from './openapi-schemas.ts';

/**
 * The problems that a route can respond with, as references to the responses of
 * `problemResponses`.
 */
export function problemReferences(route: TenantRoute): Json {
  const responses = problemStatuses.flatMap(status => {
    const codes = codesOf(status, route);
    return codes.length > 0
      ? [[status, { $ref: `#/components/responses/${nameOf(status, codes)}` }]]
      : [];
  });
  return Object.fromEntries(responses);
}

/** The responses that `problemReferences` refers to. Routes with the same codes share them. */
export function problemResponses(routes: readonly TenantRoute[]): Json {
  const responses: Json = {};
  for (const status of problemStatuses) {
    for (const route of routes) {
      const codes = codesOf(status, route);
      if (codes.length > 0) responses[nameOf(status, codes)] ??= problemResponse(status, codes);
    }
  }
  return responses;
}

/** `Problem400-duplicate-invalid_request`; `Problem400` for all codes of the status. */
function nameOf(status: ProblemStatus, codes: readonly ProblemCode[]): string {
  const isAll =
    codes.length === problemCodes.filter(code => problems[code].status === status).length;
  return [`Problem${status}`, ...(isAll ? [] : codes)].join('-');
}

/**
 * The name of the schema of a problem: `Problem400Duplicate`. The codes that every route has are
 * left out, so that it stays short.
 */
function titleOf(status: ProblemStatus, codes: readonly ProblemCode[]): string {
  const [name = '', ...ownCodes] = nameOf(status, codes).split('-');
  const isGeneral = (code: string) => general.some(each => each === code);
  const words = ownCodes.filter(code => !isGeneral(code)).flatMap(code => code.split('_'));
  return name + words.map(pascalCase).join('');
}

/** The schema of the problems of one status, with all members and the codes it can have. */
function schemaOf(status: ProblemStatus, codes: readonly ProblemCode[]): Json {
  const { properties } = problemSchema;

  return {
    ...problemSchema,
    title: titleOf(status, codes),
    properties: {
      ...properties,
      status: { ...properties.status, const: status },
      code: { ...properties.code, enum: codes },
    },
  };
}

/** The response of one status, with the codes that it can carry. */
function problemResponse(status: ProblemStatus, codes: readonly ProblemCode[]): Json {
  const [code = 'internal_error'] = codes;
  const example = {
    ...problemBody(code, '0f7c1d3e-5b7a-4c59-9d0e-6a1f2b3c4d5e'),
    ...(problemHeaders[status]?.includes('Retry-After') ? { retryAfter: 2 } : {}),
    ...(code === 'validation_failed'
      ? {
          errors: { CountryName: ['is required'] },
          errorCodes: { CountryName: [{ code: 'required' }] },
        }
      : {}),
  };

  return {
    description: codes.map(code => `\`${code}\`: ${problems[code].title}`).join('  \n'),
    headers: status === 413 ? withoutTimes(headerReferences()) : headersOf(status),
    content: { 'application/problem+json': { schema: schemaOf(status, codes), example } },
  };
}

function headersOf(status: ProblemStatus): Json {
  return headerReferences(...(problemHeaders[status] ?? []));
}

/** The headers of a response to a request that cannot succeed later either. */
function withoutTimes(headers: Json): Json {
  const times = ['RateLimit-Limit', 'RateLimit-Remaining', 'RateLimit-Reset'];
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !times.includes(name)));
}

const problemHeaders: Partial<Record<ProblemStatus, string[]>> = {
  401: ['WWW-Authenticate'],
  403: ['WWW-Authenticate'],
  409: ['Retry-After'],
  415: ['Accept-Patch'],
  429: ['Retry-After'],
  503: ['Retry-After'],
};

/** The members of a problem document, of any status and code. */
export const problemSchema = {
  type: 'object',
  description: 'Problem details (RFC 9457).',
  required: ['type', 'title', 'status', 'code', 'traceId'],
  additionalProperties: false,
  properties: {
    type: {
      type: 'string',
      format: 'uri-reference',
      description: 'The page that explains the code.',
    },
    title: { type: 'string', description: 'The problem in a few words. The text may change.' },
    status: {
      type: 'integer',
      format: 'int32',
      minimum: 400,
      maximum: 599,
      description: 'The status of the response.',
    },
    code: {
      type: 'string',
      enum: Object.keys(problems),
      description: 'What is wrong. A code keeps its meaning.',
    },
    traceId: {
      type: 'string',
      format: 'uuid',
      description: 'The `X-Request-Id`. Report it with the problem.',
    },
    detail: {
      type: 'string',
      description: 'What is wrong with this request, as text that may change.',
    },
    retryAfter: {
      type: 'integer',
      format: 'int32',
      minimum: 1,
      maximum: maxInt32,
      description: 'The number of seconds to wait, as in the header `Retry-After`.',
    },
    references: {
      type: 'array',
      description: 'Of `in_use`: the records that refer to this one, and that you may read.',
      items: {
        title: 'ProblemReference',
        type: 'object',
        required: ['resource', 'count'],
        additionalProperties: false,
        properties: {
          resource: { type: 'string', description: 'The name of a resource, such as `Entity`.' },
          count: {
            type: 'integer',
            format: 'int32',
            minimum: 1,
            maximum: maxInt32,
            description: 'The number of its records.',
          },
        },
      },
    },
    challenge: {
      type: 'string',
      description: 'Of `second_factor_required`: completes the login at `/auth/login/verify`.',
    },
    methods: {
      type: 'array',
      items: { type: 'string' },
      description:
        'Of `second_factor_required`: what completes it, `totp`, `passkey` or `recoveryCode`.',
    },
    passkey: {
      title: 'ProblemPasskey',
      type: 'object',
      description:
        'Of `second_factor_required`: the options for `navigator.credentials.get`, as ' +
        '`parseRequestOptionsFromJSON` takes them.',
    },
    setupToken: {
      type: 'string',
      description:
        'Of `second_factor_setup_required`: sets up a second factor at `/auth/login/setup`.',
    },
    errors: {
      title: 'FieldErrors',
      type: 'object',
      description:
        'What is wrong, by field name; a member of a list by its place, as `EntityIds[1]`.',
      additionalProperties: { type: 'array', items: { type: 'string' } },
    },
    errorCodes: {
      title: 'FieldErrorCodes',
      type: 'object',
      description:
        'The same as `errors`, for programs: a code for each text, with the numbers or values that it names.',
      additionalProperties: {
        type: 'array',
        items: {
          title: 'FieldErrorCode',
          type: 'object',
          required: ['code'],
          additionalProperties: false,
          properties: {
            code: {
              type: 'string',
              enum: fieldErrorCodes,
              description: 'What is wrong with the field.',
            },
            min: { type: 'number', description: 'The least value or length that is accepted.' },
            max: { type: 'number', description: 'The greatest value or length that is accepted.' },
            expected: { type: 'string', description: 'The type that is accepted.' },
            values: {
              type: 'array',
              items: { type: 'string' },
              description: 'The values that are accepted.',
            },
            deleted: {
              type: 'boolean',
              description: 'Whether the record with this code is marked as deleted.',
            },
          },
        },
      },
    },
  },
};

/** Every status that a problem of a documented route can have. */
const problemStatuses = [
  400, 401, 403, 404, 408, 409, 410, 412, 413, 415, 422, 429, 500, 503,
] as const;
type ProblemStatus = (typeof problemStatuses)[number];

/** The codes with which a route can respond with a status, in the order of `problems`. */
function codesOf(status: ProblemStatus, route: TenantRoute): ProblemCode[] {
  const codes = new Set<ProblemCode>([
    ...general,
    ...ofAccess(route),
    ...ofInput(route),
    ...(route.problems ?? []),
  ]);
  return problemCodes.filter(code => codes.has(code) && problems[code].status === status);
}

/**
 * The problems of every route: `Prefer: handling=strict` refuses unknown parameters of each.
 */
const general: ProblemCode[] = [
  ...(['validation_failed', 'invalid_request', 'rate_limited', 'internal_error'] as const),
  ...(['unavailable', 'migration_pending', 'overloaded'] as const),
];

function ofAccess(route: TenantRoute): ProblemCode[] {
  const { access } = route;
  if (access === 'anonymous') return ['tenant_required', 'tenant_inactive'];
  if (access === 'client') return ['unauthorized', 'tenant_inactive', 'gone'];

  return [
    ...([
      'unauthorized',
      'invalid_token',
      'token_expired',
      'tenant_required',
      'tenant_inactive',
      'gone',
    ] as const),
    ...(requiredPermission(route) ? (['forbidden'] as const) : []),
  ];
}

function ofInput(route: TenantRoute): ProblemCode[] {
  const { body, upload, path, response, cache, query, takesIfMatch, takesIdempotencyKey } = route;
  const codes: ProblemCode[] = [];
  if (body) codes.push('malformed_json');
  if (body || upload) codes.push('request_timeout', 'payload_too_large', 'unsupported_media_type');
  if (takesIfMatch) codes.push('precondition_failed');
  if (takesIdempotencyKey) codes.push('idempotency_in_progress', 'idempotency_key_reused');
  // A complete list of reference data responds with 404 when it is empty. Other lists are then
  // `[]`.
  const isCompleteList =
    response instanceof z.ZodArray && cache === 'revalidate' && query?.shape.limit === undefined;
  const endsSession = path.includes('/sessions/'); // ending an unknown one succeeds
  const isMissing =
    path.includes(':') && !endsSession && !route.problems?.includes('unknown_record');
  if (isCompleteList || isMissing) codes.push('not_found');

  return codes;
}
