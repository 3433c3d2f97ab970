import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { openApiDocument } from '../../src/docs/openapi-document.ts';
import { documentedRoutes } from '../../src/routes.ts';

interface Response {
  $ref?: string;
  content?: Record<string, { schema: object }>;
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
  responses: Record<string, Response>;
}

export interface Document {
  openapi: string;
  security: object[];
  paths: Record<string, Record<string, Operation>>;
  components: { responses: Record<string, Response>; schemas: Record<string, object> };
}

/** What an answer is judged by. */
interface Judged {
  status: number;
  headers: Headers;
  body: unknown;
}

export const routes = documentedRoutes();
export const document = openApiDocument(routes) as unknown as Document;

// Formats beyond JSON Schema's own and OpenAPI's own keywords are annotations.
const ajv = new Ajv2020({ strict: false, allErrors: true });
formats.default(ajv);
ajv.addSchema({ $id: 'document', ...document });

const paths = Object.entries(document.paths).map(([path, operations]) => ({
  path,
  operations,
  pattern: new RegExp(`^${path.replace(/[.]/g, '\\.').replace(/\{\w+\}/g, '[^/]+')}$`),
}));
const validators = new Map<string, ValidateFunction>();
/** Methods and addresses that were answered, with the statuses: what a walk over the API has seen. */
export const seen = new Map<string, Set<number>>();

/**
 * Holds an answer against the document: its status must be one of the operation's, its body and type what is documented
 * for that status. Every answer that the suite's client gets comes through here.
 *
 * @throws when the service answers otherwise than its documentation says
 */
export function checkAnswer(method: string, url: string, answer: Judged): void {
  const path = new URL(url).pathname;
  const found = paths.find(({ pattern }) => pattern.test(path));
  const operation = found?.operations[method === 'HEAD' ? 'get' : method.toLowerCase()];
  const complain = (text: string) => new Error(`${method} ${path} answered ${answer.status}, which ${text}`);
  const type = answer.headers.get('content-type')?.split(';')[0] ?? '';
  const { status } = answer;
  if (type === 'application/problem+json') checkProblem(answer, complain);
  if (!found || !operation) return;

  const key = `${method} ${found.path}`;
  seen.set(key, (seen.get(key) ?? new Set()).add(status));
  const documented = operation.responses[status];
  if (!documented) throw complain(`its document does not name: ${Object.keys(operation.responses).join(', ')}`);
  const shared = documented.$ref?.split('/').at(-1);
  const content = shared === undefined ? documented.content : document.components.responses[shared]?.content;
  if (method === 'HEAD') return;
  if (!content) {
    if (answer.body !== '') throw complain('is documented to have no body');
    return;
  }
  if (!content[type]) throw complain(`is documented as ${Object.keys(content)}, not ${type}`);
  const pointer = shared
    ? `/components/responses/${shared}`
    : `/paths/${pointerTo(found.path)}/${method.toLowerCase()}/responses/${status}`;
  check(`${pointer}/content/${pointerTo(type)}/schema`, answer.body, complain);
}

/** True wherever the problem comes from, also at paths that are not in the document. */
function checkProblem({ status, headers, body }: Judged, complain: (text: string) => Error): void {
  if (body === '') return; // HEAD
  check('/components/schemas/Problem', body, complain);
  const { status: stated, traceId } = body as { status: number; traceId: string };
  if (stated !== status) throw complain(`its body calls ${stated}`);
  if (traceId !== headers.get('x-request-id')) throw complain('has another trace id than X-Request-Id');
  if (status === 503 || status === 429) {
    if (!(Number(headers.get('retry-after')) >= 1)) throw complain('does not say when to try again');
  }
}

/** @param pointer of the schema, in the document */
function check(pointer: string, body: unknown, complain: (text: string) => Error): void {
  const validate = validators.get(pointer) ?? ajv.compile({ $ref: `document#${pointer}` });
  validators.set(pointer, validate);
  if (!validate(body))
    throw complain(`is not what is documented: ${ajv.errorsText(validate.errors, { dataVar: 'body' })}`);
}

/** A name within a JSON pointer within a URI. */
function pointerTo(name: string): string {
  return encodeURIComponent(name.replace(/~/g, '~0').replace(/\//g, '~1'));
}
