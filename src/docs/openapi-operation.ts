import type { TenantRoute } from '../tenancy/define-route.ts';
import { parameters } from './openapi-parameters.ts';
import { problemReferences } from './openapi-problems.ts';
import { successResponses } from './openapi-responses.ts';
import { type Json, toSchema } from './openapi-schemas.ts';

/**
 * The OpenAPI operation of a route. A route that requires a permission has it in `x-permission`.
 * @param routes all routes, for examples of records
 */
export function operation(route: TenantRoute, routes: readonly TenantRoute[]): Json {
  const requirement = requirements[route.access];
  const description = [
    route.description,
    requirement?.text ?? `Needs a token with the permission \`${route.access}\`.`,
  ].filter(Boolean);
  return {
    operationId: operationId(route),
    tags: [route.tag],
    summary: route.summary,
    description: description.join('\n\n'),
    ...(requirement?.security ? { security: requirement.security } : {}),
    ...(requirement ? {} : { 'x-permission': route.access }),
    parameters: parameters(route),
    ...requestBody(route),
    responses: { ...successResponses(route, routes), ...problemReferences(route) },
  };
}

interface Requirement {
  text: string;
  /** Undefined: the default of the document, a bearer token. */
  security?: Json[];
}

/** What a caller must send, by the access of a route. Every other access is the name of a permission. */
const requirements: Record<string, Requirement> = {
  anonymous: { text: 'Needs `X-Tenant`, but no token.', security: [] },
  optional: { text: 'Needs `X-Tenant` or a token.', security: [{}, { bearer: [] }] },
  client: { text: 'Needs the id and the secret of an API client.', security: [{ basic: [] }] },
  user: { text: 'Needs a token.' },
};

/** `GET /api/v1/Countries/code/{code}` → `getCountriesCodeByCode` */
function operationId({ method, path }: TenantRoute): string {
  const segments = path.replace(/^\/api\/(v1\/)?/, '').split(/[/.-]/);
  const words = segments.map(text => (text.startsWith(':') ? `By${capitalise(text.slice(1))}` : capitalise(text)));
  return method.toLowerCase() + words.join('');
}

function capitalise(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

function requestBody({ body, example, upload }: TenantRoute): Json {
  if (upload)
    return { requestBody: { required: true, content: { [upload.mediaType]: { schema: { type: 'string' } } } } };
  if (!body) return {};
  const content = { schema: toSchema(body, 'input'), ...(example ? { example } : {}) };
  return { requestBody: { required: true, content: { 'application/json': content } } };
}
