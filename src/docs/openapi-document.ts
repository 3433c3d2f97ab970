import { z } from 'zod';
import type { TenantRoute } from '../tenancy/define-route.ts';
import { operation } from './openapi-operation.ts';
import { problemResponses, problemSchema } from './openapi-problems.ts';
import { responseHeaders } from './openapi-responses.ts';
import { type Json, namedSchemas } from './openapi-schemas.ts';

/** Version of the API contract, not of the build. */
const version = '1.0.0';

/** The OpenAPI document as JSON text: the one that the service serves and `npm run openapi` prints. */
export function openApiText(routes: readonly TenantRoute[]): string {
  return `${JSON.stringify(openApiDocument(routes), null, 2)}\n`;
}

/** An OpenAPI 3.1 document, generated from the definitions of the mounted routes. */
export function openApiDocument(routes: readonly TenantRoute[]): Json {
  const paths: Record<string, Json> = {};
  for (const route of routes) {
    const path = route.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operation(route, routes) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Sales back office',
      version,
      description:
        'Reference data, activities and an audit log for companies (tenants), each with a database of its own. ' +
        'See [the guide](/docs).',
      contact: { name: 'The operator of this installation' },
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/' }],
    security: [{ bearer: [] }],
    tags: tags(routes),
    paths,
    components: {
      securitySchemes,
      schemas: { ...namedSchemas(routes), Problem: problemSchema },
      headers: responseHeaders,
      responses: problemResponses(routes),
    },
  };
}

/** The groups of operations. Each has the description of its list, or of the first of its routes that has one. */
function tags(routes: readonly TenantRoute[]): Json[] {
  const names = [...new Set(routes.map(route => route.tag))];
  return names.map(name => {
    const described = routes.filter(({ tag, description }) => tag === name && description);
    const { description } = described.find(({ response }) => response instanceof z.ZodArray) ?? described[0] ?? {};
    return { name, description: tagDescriptions[name] ?? description };
  });
}

/** Of tags whose routes have several subjects. */
const tagDescriptions: Record<string, string> = {
  Authentication: 'Login, sessions, registration, forgotten passwords, and the tokens of API clients.',
};

const securitySchemes = {
  bearer: {
    type: 'http',
    scheme: 'bearer',
    bearerFormat: 'JWT',
    description: 'The `accessToken` that login or refresh returns.',
  },
  basic: { type: 'http', scheme: 'basic', description: 'The id and the secret of an API client.' },
};
