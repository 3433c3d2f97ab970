import type { z } from 'zod';

/** The limits that a route can name: `login` counts by client and account, the others by client. */
export type RouteLimit = 'login' | 'account' | 'token';

/**
 * One endpoint, defined once: what it takes, who may call it, what it answers. The router mounts it, and its
 * documentation is made from it.
 */
export interface Route<Access = unknown, Context = unknown> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  /** In @koa/router's form: `/api/v1/EntityStatus/:id`. */
  readonly path: string;
  /** Who may call. Every route must say it. */
  readonly access: Access;
  readonly summary: string;
  /** Groups endpoints in the documentation. */
  readonly tag: string;
  /** What it does beyond the summary, in Markdown. */
  readonly description?: string | undefined;
  /** Parameters of the query string; undefined = all are ignored. */
  readonly query?: z.ZodObject | undefined;
  /** Fields of the JSON body; undefined = the route takes none. */
  readonly body?: z.ZodObject | undefined;
  /** A body for the documentation, that would be accepted. */
  readonly example?: object | undefined;
  /** Largest body, in bytes. */
  readonly bodyLimit: number;
  /** Counted apart, beside the limit of all requests; undefined = that one alone. */
  readonly rateLimit?: RouteLimit | undefined;
  /** What a success answers with; undefined = no body. */
  readonly response?: z.ZodType | undefined;
  /**
   * Media type of a response that is not JSON, such as `text/csv; charset=utf-8`. The handler's result (a string, bytes, or a
   * `Readable` that is streamed) is then sent as it is.
   */
  readonly contentType?: string | undefined;
  readonly status: 200 | 201 | 202 | 204;
  /** Whether it can also answer 204 and nothing, instead. */
  readonly mayBeEmpty?: boolean | undefined;
  /** `no-store`, or a representation that a client may keep as long as it asks whether it is current. */
  readonly cache: 'no-store' | 'revalidate';
  /** Where a created record is read. */
  readonly location?: ((answer: never) => string) | undefined;
  readonly handler: (input: RouteInput<never, never>, context: Context) => Promise<unknown>;
}

/** What a handler is given of the request. */
export interface RouteInput<Body, Query = Record<never, never>> {
  readonly body: Body;
  readonly query: Query;
  /** Path parameters, decoded. */
  readonly params: Readonly<Record<string, string>>;
}

export const bodyLimits = { resource: 64 * 1024, auth: 8 * 1024 };

/** An id in a path: canonical decimal, within the range of the column. Anything else is an id that does not exist. */
export function pathId(value: string | undefined, max: number): number | undefined {
  if (value === undefined || !/^[1-9][0-9]{0,15}$/.test(value)) return undefined;
  const id = Number(value);
  return id <= max ? id : undefined;
}

export const maxInt32 = 2 ** 31 - 1;
