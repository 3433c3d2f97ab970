import type { z } from 'zod';
import type { ProblemCode } from '../problems.ts';
import type { FieldErrors } from '../runtime/field-error.ts';
import { readId } from '../runtime/id-text.ts';
import type { ListContract } from './request/list-parameters/list-contract.ts';
import type { ListQuery } from './request/list-parameters/list-query.ts';
import type { UploadContract } from './request/read-upload.ts';
import type { Precondition } from './response/representation.ts';

/**
 * The rate limits that a route can have: `login` counts by client and account, the others by
 * client.
 */
export type RouteLimit = 'login' | 'account' | 'token';

/**
 * The definition of one endpoint: input, access and response. The router and the documentation
 * both use it.
 */
export interface Route<Access = unknown, Context = unknown> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** In @koa/router's syntax: `/api/v1/EntityStatus/:id`. */
  readonly path: string;
  /**
   * The callers who may use the endpoint. It has no default, so that every route decides it.
   */
  readonly access: Access;
  readonly summary: string;
  /** Groups endpoints in the documentation. */
  readonly tag: string;
  /** Details beyond the summary, in Markdown. */
  readonly description?: string | undefined;
  /** Parameters of the query string; undefined = the route ignores all. */
  readonly query?: z.ZodObject | undefined;
  /**
   * The ways in which clients may sort, filter, search and page the list that the route
   * returns.
   */
  readonly list?: ListContract | undefined;
  /**
   * Fields of the JSON body; undefined = the route reads no body. The body of PATCH has some of
   * them, as a JSON merge patch (RFC 7396).
   */
  readonly body?: z.ZodObject | undefined;
  /**
   * True if the body has some of the fields of `body`, and the others stay as they are: always
   * for PATCH.
   */
  readonly takesPart?: boolean | undefined;
  /**
   * Returns the further errors of a body that the contract refuses: those of the fields that it
   * takes. May throw a problem, which is then not sent.
   */
  readonly checkValid?:
    | ((input: ValidFields, context: Context) => Promise<FieldErrors>)
    | undefined;
  /** A body that is not JSON; the handler reads it with `readUpload` of its input. */
  readonly upload?: UploadContract | undefined;
  /** A valid body, for the documentation. */
  readonly example?: object | undefined;
  /** Maximum size of the body in bytes. */
  readonly bodyLimit: number;
  /**
   * Maximum time until the response, in ms, without the time to receive the body; undefined =
   * the deadline of other requests.
   */
  readonly deadlineMs?: number | undefined;
  /**
   * A second rate limit beside the limit of all requests; undefined = only the limit of all
   * requests.
   */
  readonly rateLimit?: RouteLimit | undefined;
  /** Body of a successful response; undefined = no body. */
  readonly response?: z.ZodType | undefined;
  /**
   * The CSV form of the response, for an `Accept` that prefers it: the handler then returns a
   * `ListExport`. A list has a CSV form in any case.
   */
  readonly csv?: CsvContract | undefined;
  /**
   * Media type of a response that is no JSON: the handler returns an `EventStream`. For the
   * documentation.
   */
  readonly contentType?: string | undefined;
  readonly status: 200 | 201 | 202 | 204;
  /** True if a successful response may also be 204 without a body. */
  readonly mayBeEmpty?: boolean | undefined;
  /**
   * `no-store`; or `revalidate`: clients may store the response, but must revalidate it before
   * each use.
   */
  readonly cache: 'no-store' | 'revalidate';
  /**
   * True if the response has the `ETag` of the record that it contains, although the client
   * must not store it.
   */
  readonly hasTag?: boolean | undefined;
  /**
   * The fields of the record that change without a change of the record: the service sets them
   * by itself, such as the last login of a user, or reads them from other records, such as the
   * title of a status. The `ETag` changes with them, so that no 304 hides their values;
   * `If-Match` and `If-None-Match` of a change do not compare them. So is a field that only the
   * response to the creation of the record has.
   */
  readonly volatile?: readonly string[] | undefined;
  /**
   * True if the handler makes the change only if the record meets the `precondition` of its
   * input.
   */
  readonly takesIfMatch?: boolean | undefined;
  /**
   * True if the handler makes one change, by `write`, which a repeated `Idempotency-Key` does
   * not make again.
   */
  readonly takesIdempotencyKey?: boolean | undefined;
  /**
   * The problems of the handler, beside those that follow from access, input and headers. For
   * the documentation.
   */
  readonly problems?: readonly ProblemCode[] | undefined;
  /** True if the handler returns a `Page` with a cursor, because the list grows at its end. */
  readonly hasCursor?: boolean | undefined;
  /**
   * True if the handler continues a stream after the event that the header `Last-Event-ID`
   * names.
   */
  readonly takesLastEventId?: boolean | undefined;
  /** Returns the path of a created record, for the `Location` header. */
  readonly location?: ((response: never) => string) | undefined;
  /**
   * Returns a value of the response's type, or a `Sent`. Of a value, only the fields that
   * `response` names are sent.
   */
  readonly handler: (input: RouteInput<never, never>, context: Context) => Promise<unknown>;
}

/** The fields of a body without those that the contract refuses. */
export interface ValidFields {
  readonly body: Record<string, unknown>;
  /** The errors of the contract. */
  readonly errors: FieldErrors;
  readonly params: Readonly<Record<string, string>>;
}

/** The columns and the use of a response as CSV. For the documentation. */
export interface CsvContract {
  readonly columns: readonly string[];
  readonly description: string;
}

/** The input of a handler. */
export interface RouteInput<Body, Query = Record<never, never>> {
  readonly body: Body;
  readonly query: Query;
  /** The parameters of a list that is not the plain one; the handler then returns a `Page`. */
  readonly list?: ListQuery | undefined;
  /** Path parameters, decoded. */
  readonly params: Readonly<Record<string, string>>;
  /** The `If-Match` or `If-None-Match` of a route that takes them. */
  readonly precondition?: Precondition | undefined;
  /** The header `Last-Event-ID` of a route that takes it. */
  readonly lastEventId?: string | undefined;
  /** True if a route with `csv` shall respond with CSV. */
  readonly prefersCsv: boolean;
  /** Reads the body of a route with `upload`. */
  readonly readUpload: ReadUpload;
  /**
   * The header `Idempotency-Key` of a route with `upload`, whose key stands for its body, too.
   */
  readonly idempotencyKey?: string | undefined;
}

/** Calls the function with each piece of the body, and waits for it. */
export type ReadUpload = (onChunk: (chunk: Buffer) => Promise<void>) => Promise<void>;

/** Maximum sizes of bodies, in bytes. */
export const bodyLimits = { resource: 64 * 1024, auth: 8 * 1024 };

/**
 * Parses an id in a path: canonical decimal, at most `max` (the range of the column). Returns
 * undefined for all other text, because no record has such an id.
 */
export function pathId(value: string | undefined, max: number): number | undefined {
  return value === undefined ? undefined : readId(value, max);
}
