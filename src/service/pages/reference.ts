/** The keywords of JSON Schema that the OpenAPI document of the service uses. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  description?: string;
  const?: unknown;
  enum?: unknown[];
  default?: unknown;
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  anyOf?: Schema[];
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  maxItems?: number;
}

/**
 * An OpenAPI operation with the facts that the pages of the reference show, its references
 * resolved.
 */
export interface Endpoint {
  /** The operation's id, which is the anchor on its page. */
  readonly id: string;
  readonly method: string;
  readonly path: string;
  readonly summary: string;
  /** Markdown; without the description that all endpoints of the group share. */
  readonly description: string;
  readonly parameters: readonly Parameter[];
  readonly security: readonly object[];
  readonly body?: Body | undefined;
  readonly response: SuccessResponse;
  readonly errors: readonly { readonly status: string; readonly codes: readonly string[] }[];
}

export interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required: boolean;
  readonly description?: string;
  readonly schema: Schema;
}

interface Body {
  readonly mediaType: string;
  readonly schema: Schema;
  readonly example?: unknown;
}

/** The first response that is not an error. Without `body`, the response has none. */
interface SuccessResponse {
  readonly status: string;
  readonly isList: boolean;
  /** True if the response may also be 204. */
  readonly mayBeEmpty: boolean;
  readonly body?: Omit<Body, 'mediaType'> | undefined;
}

/** The endpoints with one tag. They share a page. */
export interface EndpointGroup {
  readonly name: string;
  /** Path of the page on the service. */
  readonly page: string;
  /** Markdown. */
  readonly description: string;
  readonly endpoints: readonly Endpoint[];
}

interface Content {
  [mediaType: string]: { schema: Schema; example?: unknown };
}

interface Operation extends Pick<Endpoint, 'summary' | 'description' | 'parameters'> {
  operationId: string;
  tags: string[];
  security?: object[];
  requestBody?: { content: Content };
  responses: Record<string, { $ref?: string; content?: Content }>;
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  tags: { name: string; description: string }[];
  security: object[];
  components: { schemas: Record<string, Schema>; responses: Record<string, { content: Content }> };
}

/**
 * Reads the groups of endpoints, in the order of the tags.
 * @param openApi the OpenAPI document of the service
 */
export function endpointGroups(openApi: object): EndpointGroup[] {
  const document = openApi as Document;
  return document.tags.map(({ name, description }) => ({
    name,
    page: referencePath(name),
    description,
    endpoints: Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.entries(operations)
        .filter(([, { tags }]) => tags.includes(name))
        .map(([method, operation]) => endpoint(method, path, operation, description, document)),
    ),
  }));
}

/** The path of the page of a tag: `TaxCode` → `/docs/reference/tax-code`. */
export function referencePath(tag: string): string {
  return `/docs/reference/${tag.replace(/(?<=[a-z])(?=[A-Z])/g, '-').toLowerCase()}`;
}

function endpoint(
  method: string,
  path: string,
  operation: Operation,
  shared: string,
  document: Document,
): Endpoint {
  const { operationId: id, summary, description, parameters, responses, requestBody } = operation;
  const [mediaType, content] = Object.entries(requestBody?.content ?? {})[0] ?? [];

  return {
    id,
    method: method.toUpperCase(),
    path,
    summary,
    description: description.startsWith(shared)
      ? description.slice(shared.length).trim()
      : description,
    parameters,
    security: operation.security ?? document.security,
    body:
      mediaType === undefined || !content
        ? undefined
        : { mediaType, ...content, schema: resolve(content.schema, document) },
    response: successResponse(responses, document),
    errors: Object.keys(responses)
      .filter(status => Number(status) >= 400)
      .map(status => ({ status, codes: problemCodes(responses[status]?.$ref ?? '', document) })),
  };
}

function successResponse(responses: Operation['responses'], document: Document): SuccessResponse {
  const [status = '', response] =
    Object.entries(responses).find(([each]) => each.startsWith('2')) ?? [];
  const json = response?.content?.['application/json'];
  const mayBeEmpty = status !== '204' && '204' in responses;
  if (!json) return { status, isList: false, mayBeEmpty };

  const schema = resolve(json.schema, document);
  const isList = schema.type === 'array';

  return {
    status,
    isList,
    mayBeEmpty,
    body: { schema: isList ? (schema.items ?? {}) : schema, example: json.example },
  };
}

/** Returns a schema with the components that it refers to in their places. */
function resolve(schema: Schema, document: Document): Schema {
  const { $ref, items, properties, ...rest } = schema;
  if ($ref) return { ...componentOf($ref, document), ...rest };

  return {
    ...rest,
    ...(items && { items: resolve(items, document) }),
    ...(properties && {
      properties: Object.fromEntries(
        Object.entries(properties).map(([name, property]) => [name, resolve(property, document)]),
      ),
    }),
  };
}

function componentOf(reference: string, document: Document): Schema {
  const schema = document.components.schemas[reference.split('/').at(-1) ?? ''];
  return schema ? resolve(schema, document) : {};
}

function problemCodes(reference: string, document: Document): string[] {
  const response = document.components.responses[reference.split('/').at(-1) ?? ''];
  const { $ref = '' } = response?.content['application/problem+json']?.schema ?? {};
  return (componentOf($ref, document).properties?.code?.enum ?? []) as string[];
}
