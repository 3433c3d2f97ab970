import type { TenantRoute } from '../tenancy/define-route.ts';
import { parameters } from './openapi-parameters.ts';
import { failures, headers, problemResponse, problemSchema, statuses, success } from './openapi-responses.ts';
import { type Json, namedSchemas, toSchema } from './openapi-schemas.ts';

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
    parameters: parameters(route),
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

function requestBody({ body, example }: TenantRoute): Json {
  if (!body) return {};
  const content = { schema: toSchema(body, 'input'), ...(example ? { example } : {}) };
  return { requestBody: { required: true, content: { 'application/json': content } } };
}
