import { z } from 'zod';
import { tokenPath } from '../../accounts/auth/token-endpoint.ts';
import { mergePatch } from '../../lib/http/request/read-body.ts';
import { takesNull } from '../../lib/http/request/read-fields.ts';
import { schemaOf } from '../../lib/http/schema-of.ts';
import { buildVersion } from '../../lib/runtime/build-version.ts';
import { pascalCase } from '../../lib/runtime/casing.ts';
import type { TenantRoute } from '../../tenancy/define-route.ts';
import { parameters } from './openapi-parameters.ts';
import { problemReferences, problemResponses } from './openapi-problems.ts';
import { emptyResponses, responseHeaders, successResponses } from './openapi-responses.ts';
import { entitle, type Json, orNull, shareObjects, toSchema } from './openapi-schemas.ts';

/**
 * The OpenAPI document as JSON text: the one that the service serves and `npm run openapi`
 * prints.
 */
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

  const schemas = new Map<string, Json>();
  const sharedPaths = shareObjects(paths, schemas);
  const problems = Object.entries(problemResponses(routes)).map(
    ([name, response]) => [name, shareObjects(response, schemas)] as const,
  );

  return {
    openapi: '3.1.0',
    info: {
      title: 'Sales back office',
      // The page *Changes* of the guide lists what is new by this version.
      version: buildVersion,
      description:
        'Reference data, activities and an audit log for companies (tenants), each with a database of its own. ' +
        'See [the guide](/docs).',
      contact: { name: 'The operator of this installation' },
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/' }],
    security: [{ bearer: [] }],
    tags: tags(routes),
    paths: sharedPaths,
    components: {
      securitySchemes,
      schemas: Object.fromEntries(schemas),
      headers: responseHeaders,
      responses: { ...emptyResponses, ...Object.fromEntries(problems) },
    },
  };
}

/**
 * The groups of operations. Each has the description of its list, or of the first of its routes
 * that has one.
 */
function tags(routes: readonly TenantRoute[]): Json[] {
  const names = [...new Set(routes.map(route => route.tag))];
  return names.map(name => {
    const described = routes.filter(({ tag, description }) => tag === name && description);
    const { description } =
      described.find(({ response }) => response instanceof z.ZodArray) ?? described[0] ?? {};
    return { name, description: tagDescriptions[name] ?? description };
  });
}

/** The descriptions of tags whose routes have several subjects. */
const tagDescriptions: Record<string, string> = {
  Authentication:
    'Login, sessions, registration, forgotten passwords, and the tokens of API clients.',
};

/**
 * The ways to prove who calls. OAuth 2.0 is none of them: it needs a whole address, which the
 * document does not know, and strict programs refuse a path in its place.
 */
const securitySchemes = {
  bearer: {
    type: 'http',
    scheme: 'bearer',
    bearerFormat: 'JWT',
    description:
      'The `accessToken` that login or refresh returns; the key of a program; or a legacy token, whose responses have ' +
      '`Deprecation` and `Sunset`. Tools that speak OAuth 2.0 only exchange the guid of a program (`client_id`) and a ' +
      `key of it (\`client_secret\`) for an access token of 15 minutes, at \`${tokenPath}\` (\`client_credentials\`).`,
  },
  basic: { type: 'http', scheme: 'basic', description: 'The id and the secret of an API client.' },
};

/**
 * The OpenAPI operation of a route. A route that requires a permission has it in
 * `x-permission`.
 * @param routes all routes, for examples of records
 */
function operation(route: TenantRoute, routes: readonly TenantRoute[]): Json {
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
    parameters: parameters(route, routes),
    ...requestBody(route),
    responses: {
      ...successResponses(route, pascalCase(`${operationId(route)}Response`), routes),
      ...problemReferences(route),
    },
  };
}

interface Requirement {
  text: string;
  /** The credentials; undefined: the default of the document, a bearer token. */
  security?: Json[];
}

/**
 * The credentials that a caller must send, by the access of a route. Every other access is the
 * name of a permission.
 */
const requirements: Record<string, Requirement> = {
  anonymous: { text: 'Needs `X-Tenant`, but no token.', security: [] },
  optional: { text: 'Needs `X-Tenant` or a token.', security: [{}, { bearer: [] }] },
  client: { text: 'Needs the id and the secret of an API client.', security: [{ basic: [] }] },
  user: { text: 'Needs a token.' },
};

/** `GET /api/v1/Countries/code/{code}` → `getCountriesCodeByCode` */
function operationId({ method, path }: TenantRoute): string {
  const segments = path.replace(/^\/api\/(v1\/)?/, '').split(/[/.-]/);
  const words = segments.map(text =>
    text.startsWith(':') ? `By${pascalCase(text.slice(1))}` : pascalCase(text),
  );
  return method.toLowerCase() + words.join('');
}

function requestBody(route: TenantRoute): Json {
  const { body, example, upload, method } = route;
  if (upload) {
    const { mediaType, example } = upload;
    return {
      requestBody: {
        required: true,
        content: { [mediaType]: { schema: { type: 'string' }, example } },
      },
    };
  }

  if (!body) return {};

  const content = { schema: bodySchema(body, route), ...(example ? { example } : {}) };
  const mediaTypes = method === 'PATCH' ? [mergePatch, 'application/json'] : ['application/json'];

  return {
    requestBody: {
      required: true,
      content: Object.fromEntries(mediaTypes.map(type => [type, content])),
    },
  };
}

/**
 * The schema of a body. A field that may be absent may also be null, which is no value. Where
 * the body changes only the fields that are sent, none is required.
 */
function bodySchema(body: z.ZodObject, route: TenantRoute): Json {
  const { takesPart: isPart = false } = route;
  const title = body.meta()?.title ?? pascalCase(`${operationId(route)}Body`);
  const { required, properties, ...rest } = toSchema(body, 'input');
  const isRequired = (name: string) => (required as string[] | undefined)?.includes(name);

  const fields = Object.entries(properties as Record<string, Json>).map(
    ([name, { default: _, ...property }]) => {
      const initial = isPart ? {} : defaultOf(body.shape[name]);
      if (isRequired(name) || takesNull(schemaOf(body.shape[name]))) {
        return [name, { ...property, ...initial }];
      }

      const description = `${property.description} Null: as in a new record without it.`;
      return [name, { ...orNull(property), description, ...initial }];
    },
  );

  return entitle(
    {
      ...rest,
      properties: Object.fromEntries(fields),
      ...(isPart || required === undefined ? {} : { required }),
      title: isPart ? title.replace(/Body$/, 'Part') : title,
    },
    title,
  );
}

/** The default of a field, also of one whose value is converted; empty if it has none. */
function defaultOf(field: unknown): Json {
  return field instanceof z.ZodDefault ? { default: field.def.defaultValue } : {};
}
