import type { paths } from './api.ts';
import { type Problem, problemOf } from './problem-error.ts';
import { type WithConditions, writeQuery } from './query.ts';
import { drop, isJson } from './response-body.ts';
import type { SendUntil } from './retries.ts';
import { retryAfterSeconds } from './retry-after.ts';
import { unlessAborted } from './unless-aborted.ts';

type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';

/** The paths that have a method. */
type PathOf<Verb extends Method> = {
  [Path in keyof paths]: paths[Path] extends Record<Lowercase<Verb>, object> ? Path : never;
}[keyof paths];

/** The operation of a path and a method, as api.ts describes it. */
type Operation<Path extends keyof paths, Verb extends Method> = paths[Path][Lowercase<Verb>];

/** The keys that an object must have. */
type RequiredKeys<T> = { [Key in keyof T]-?: object extends Pick<T, Key> ? never : Key }[keyof T];

type Params<Op> = Op extends { parameters: infer Parameters }
  ? RequiredKeys<Parameters> extends never
    ? { params?: ParametersWithConditions<Parameters> }
    : { params: ParametersWithConditions<Parameters> }
  : never;

type ParametersWithConditions<Parameters> = {
  [Place in keyof Parameters]: Place extends 'query'
    ? WithConditions<Parameters[Place]>
    : Parameters[Place];
};

type Content<T> = T extends { content: infer Contents } ? Contents[keyof Contents] : never;

type Body<Op> = Op extends { requestBody: object }
  ? { body: Content<Op['requestBody']> }
  : Op extends { requestBody?: infer Optional }
    ? { body?: Content<Optional> }
    : never;

type Read = 'json' | 'text' | 'stream';

/** The input of a call, and the way to read its response. */
type Options<Op> = Params<Op> &
  Body<Op> &
  Omit<RequestInit, 'method' | 'body' | 'headers'> & {
    headers?: Record<string, string>;
    /**
     * `text` and `stream` return the body as it is, such as that of `Accept: text/csv`; `json`
     * by default.
     */
    parseAs?: Read;
  };

/** The options may be left out unless one of them is required. */
type Arguments<Op, Given> =
  RequiredKeys<Options<Op>> extends never ? [options?: Given] : [options: Given];

type Success = 200 | 201 | 202 | 204;

type Json<Response> = Response extends { content: { 'application/json': infer Value } }
  ? Value
  : undefined;

type Data<Op, Given> = Given extends { parseAs: 'text' }
  ? string
  : Given extends { parseAs: 'stream' }
    ? ReadableStream<Uint8Array> | null
    : Op extends { responses: infer Responses }
      ? Json<Responses[keyof Responses & Success]>
      : never;

/**
 * The problem of the service. A response of a proxy has no more than status and title.
 * `retryAfter` has the seconds of the header `Retry-After`.
 */
export type CallError = Partial<Problem> &
  Pick<Problem, 'status' | 'title'> & { retryAfter?: number | undefined };

/** The result of a call. A response that is 304 has no data. */
export type CallResult<Result> =
  | { data: Result; error?: never; response: Response }
  | { data?: never; error: CallError; response: Response };

type Call<Verb extends Method> = <
  Path extends PathOf<Verb>,
  Given extends Options<Operation<Path, Verb>>,
>(
  path: Path,
  ...[options]: Arguments<Operation<Path, Verb>, Given>
) => Promise<CallResult<Data<Operation<Path, Verb>, Given>>>;

/** The operations of the API, by method and path: `office.GET('/api/v1/Countries')`. */
export type Calls = { [Verb in Method]: Call<Verb> };

interface Connection {
  readonly baseUrl: string;
  readonly send: SendUntil;
}

/** Creates the calls of all operations. They throw only where `send` does. */
export function createCalls(connection: Connection): Calls {
  const of = (method: Method) => (path: string, options?: AnyOptions) =>
    unlessAborted(call(connection, method, path, options), options?.signal);
  return {
    GET: of('GET'),
    POST: of('POST'),
    PUT: of('PUT'),
    PATCH: of('PATCH'),
    DELETE: of('DELETE'),
  } as Calls;
}

/** The options of any operation. */
interface AnyOptions extends Omit<RequestInit, 'body' | 'headers'> {
  readonly params?: { readonly path?: object; readonly query?: object; readonly header?: object };
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
  readonly parseAs?: Read;
}

async function call(
  { baseUrl, send }: Connection,
  method: Method,
  path: string,
  { params = {}, body, headers, parseAs = 'json', ...init }: AnyOptions = {},
): Promise<CallResult<unknown>> {
  const values = new Map<string, unknown>(Object.entries(params.path ?? {}));
  const address = path.replace(/\{(\w+)\}/g, (_, name) =>
    encodeURIComponent(String(values.get(name))),
  );
  const query = writeQuery(params.query ?? {});
  const sentHeaders = new Headers(body === undefined ? {} : { 'Content-Type': 'application/json' });
  for (const [name, value] of Object.entries({ ...headers, ...params.header })) {
    if (value !== undefined) sentHeaders.set(name, String(value));
  }

  const request = new Request(`${baseUrl}${address}${query && `?${query}`}`, {
    ...init,
    method,
    headers: sentHeaders,
    // A text is sent as it is, with the media type in `headers`: a file of CSV, for instance.
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const response = await send(request, init.signal);

  if (!response.ok && response.status !== 304) return { error: await errorOf(response), response };
  if (parseAs === 'stream') return { data: response.body, response };

  const text = await response.text();
  if (parseAs === 'text') return { data: text, response };
  const mayBeEmpty = response.status !== 200 && response.status !== 201;
  if (text === '' && mayBeEmpty) return { data: undefined, response };
  if (text === '' || !isJson(response)) {
    return { error: { status: response.status, title: 'The response is not JSON' }, response };
  }

  return { data: JSON.parse(text), response };
}

/** Returns the problem in a response, or what there is of one. */
async function errorOf(response: Response): Promise<CallError> {
  const { status, statusText } = response;
  const problem = await problemOf(response);
  drop(response);

  const retryAfter = retryAfterSeconds(response);
  return {
    ...(problem ?? { status, title: statusText || `Status ${status}` }),
    ...(retryAfter !== undefined && { retryAfter }),
  };
}
