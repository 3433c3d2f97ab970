import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { exposedHeaders } from '../../src/lib/http/steps/cors.ts';
import { outcomeUnknownDetail } from '../../src/lib/problems.ts';
import { openApiDocument } from '../../src/service/pages/openapi-document.ts';
import { problemSchema } from '../../src/service/pages/openapi-problems.ts';
import { documentedRoutes } from '../../src/service/routes.ts';

type Contents = Record<string, { schema: object; example?: unknown }>;

interface ResponseObject {
  $ref?: string;
  headers?: Record<string, object>;
  content?: Contents;
  /** CSV, which generated clients are to ignore. */
  'x-other-content'?: Contents;
}

export interface Operation {
  operationId: string;
  summary: string;
  description: string;
  tags: string[];
  security?: object[];
  'x-permission'?: string;
  parameters: { name: string; in: string; required: boolean; schema: object }[];
  requestBody?: { content: Record<string, { schema: object; example?: unknown }> };
  responses: Record<string, ResponseObject>;
}

export interface Document {
  openapi: string;
  security: object[];
  paths: Record<string, Record<string, Operation>>;
  components: { responses: Record<string, ResponseObject>; schemas: Record<string, object> };
}

/** The part of `Headers` that tests use. */
export interface ReceivedHeaders {
  get(name: string): string | null;
  has(name: string): boolean;
  keys(): Iterable<string>;
  [Symbol.iterator](): Iterator<[string, string]>;
}

/** The parts of a response that are checked. */
interface ReceivedResponse {
  status: number;
  headers: ReceivedHeaders;
  body: unknown;
}

export const routes = documentedRoutes();
export const document = openApiDocument(routes) as unknown as Document;

// Not strict: formats that JSON Schema does not define, and keywords of OpenAPI, count as
// annotations.
const ajv = new Ajv2020({ strict: false, allErrors: true });
formats.default(ajv);
ajv.addFormat('idn-email', true); // ajv-formats does not have it
ajv.addSchema({ $id: 'document', ...document, anyProblem: problemSchema });

const paths = Object.entries(document.paths).map(([path, operations]) => ({
  path,
  operations,
  pattern: new RegExp(`^${path.replace(/[.]/g, '\\.').replace(/\{\w+\}/g, '[^/]+')}$`),
}));
const validators = new Map<string, ValidateFunction>();
/** The response statuses received so far, by `METHOD path template`. */
export const seenStatuses = new Map<string, Set<number>>();

/** Headers that any response can have: of a legacy token, and of `Prefer: handling=strict`. */
const headersOfAny = ['Deprecation', 'Sunset', 'Preference-Applied'];

/**
 * Checks a response against the OpenAPI document: the operation must document its status, and
 * for that status its headers, media type and body. The suite's `Client` passes every response
 * to this function.
 *
 * @throws {Error} when the response violates the document
 */
export function checkResponse(method: string, url: string, response: ReceivedResponse): void {
  const path = new URL(url).pathname;
  const found = paths.find(({ pattern }) => pattern.test(path));
  const operation = found?.operations[method === 'HEAD' ? 'get' : method.toLowerCase()];
  const contractError = (text: string) =>
    new Error(`${method} ${path} returned ${response.status}: ${text}`);
  const type = response.headers.get('content-type')?.split(';')[0] ?? '';
  const { status } = response;
  if (type === 'application/problem+json') checkProblem(method, response, contractError);
  if (!found || !operation) return;

  const key = `${method} ${found.path}`;
  seenStatuses.set(key, (seenStatuses.get(key) ?? new Set()).add(status));
  const documented = operation.responses[status];
  if (!documented) {
    throw contractError(
      `only these statuses are documented: ${Object.keys(operation.responses).join(', ')}`,
    );
  }
  const shared = documented.$ref?.split('/').at(-1);
  const { headers = {}, ...contents } =
    (shared && document.components.responses[shared]) || documented;
  const place = contents['x-other-content']?.[type] ? 'x-other-content' : 'content';
  const content = contents[place];
  const others = exposedHeaders.filter(
    name => response.headers.has(name) && !(name in headers) && !headersOfAny.includes(name),
  );
  if (others.length > 0) {
    throw contractError(`these headers are not documented: ${others.join(', ')}`);
  }
  if (method === 'HEAD') return;
  if (!content) {
    if (response.body !== '') throw contractError('the document allows no body');
    return;
  }
  if (!content[type]) {
    throw contractError(`the documented media type is ${Object.keys(content)}, not ${type}`);
  }
  const pointer = shared
    ? `/components/responses/${shared}`
    : `/paths/${pointerTo(found.path)}/${method.toLowerCase()}/responses/${status}`;
  check(`${pointer}/${place}/${pointerTo(type)}/schema`, response.body, contractError);
}

/** Checks a problem body; it applies to every path, also to those outside the document. */
function checkProblem(
  method: string,
  { status, headers, body }: ReceivedResponse,
  contractError: (text: string) => Error,
): void {
  if (body === '') return; // HEAD
  check('/anyProblem', body, contractError);

  const {
    status: stated,
    traceId,
    detail,
    retryAfter,
  } = body as { status: number; traceId: string; detail?: string; retryAfter?: number };

  if (stated !== status) throw contractError(`the body states status ${stated}`);
  if (traceId !== headers.get('x-request-id')) {
    throw contractError('traceId differs from X-Request-Id');
  }

  const seconds = headers.get('retry-after');
  if (retryAfter !== (seconds === null ? undefined : Number(seconds))) {
    throw contractError(`retryAfter is ${retryAfter}, and Retry-After is ${seconds}`);
  }

  if (status === 503 && detail === outcomeUnknownDetail) {
    if (headers.has('retry-after')) {
      throw contractError('Retry-After on a change that may have been made');
    }
    if (method === 'GET' || method === 'HEAD') throw contractError('a read has no unknown outcome');
  } else if (status === 503 || status === 429) {
    if (!(Number(headers.get('retry-after')) >= 1)) {
      throw contractError('Retry-After is missing or below 1');
    }
  }
}

function check(pointer: string, body: unknown, contractError: (text: string) => Error): void {
  const violations = violationsOf(pointer, body);
  if (violations) throw contractError(`the body violates its schema: ${violations}`);
}

/**
 * Returns how a body violates a schema of the document; undefined if it does not.
 * @param pointer JSON pointer of the schema in the document
 */
export function violationsOf(pointer: string, body: unknown): string | undefined {
  const validate = validators.get(pointer) ?? ajv.compile({ $ref: `document#${pointer}` });
  validators.set(pointer, validate);
  return validate(body) ? undefined : ajv.errorsText(validate.errors, { dataVar: 'body' });
}

/** Escapes a name for a JSON pointer (RFC 6901) in a URI fragment. */
export function pointerTo(name: string): string {
  return encodeURIComponent(name.replace(/~/g, '~0').replace(/\//g, '~1'));
}
