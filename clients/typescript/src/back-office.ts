import type { components } from './api.ts';
import { type Calls, createCalls } from './calls.ts';
import { type Change, type ChangesQuery, followChanges } from './changes.ts';
import { type ListPath, type ListQuery, type ListRecord, readPages } from './pages.ts';
import { withRetries } from './retries.ts';
import { Session } from './session.ts';
import type { TokenStorage } from './token-store.ts';
import type { Tokens } from './tokens.ts';

export type { components, paths } from './api.ts';
export type { CallError, CallResult } from './calls.ts';
export type { Change, ChangesQuery } from './changes.ts';
export type { ListPath, ListQuery, ListRecord } from './pages.ts';
export { ProblemError } from './problem-error.ts';
export type { TokenStorage } from './token-store.ts';
export type { Tokens } from './tokens.ts';

export interface BackOfficeOptions {
  /** The address of the service, such as `https://api.example.com`. */
  url: string;
  /** The guid of the tenant, or its slug. */
  tenant: string;
  /** The tokens of a session that was stored by `onTokens`. */
  tokens?: Tokens | undefined;
  /**
   * Where the tokens are kept: `sessionStorage` over a reload of the tab, `localStorage` over
   * tabs and the end of the browser; as a function (`() => localStorage`) also where the
   * browser forbids it. Without it, and where it is forbidden or full, in memory.
   */
  storage?: TokenStorage | (() => TokenStorage) | undefined;
  /**
   * Called after each login and refresh, also after those of another tab; without tokens after
   * the end of the session. The call that has caused it waits for it.
   */
  onTokens?: (tokens: Tokens | undefined) => void | Promise<void>;
  /** Repetitions of one request; 3 by default. */
  maxRetries?: number;
  /** The longest `Retry-After` that is waited for, in ms; 30 s by default. */
  maxWaitMs?: number;
  /** Replaces `fetch`, to use a proxy for instance. */
  fetch?: (request: Request) => Promise<Response>;
}

/**
 * `GET`, `POST`, `PUT`, `PATCH` and `DELETE` with the paths and types of the API, and what is
 * made of them.
 */
export interface BackOffice extends Calls {
  /** @throws {ProblemError} when the service refuses the login */
  login(email: string, password: string): Promise<components['schemas']['LoginResponse']>;
  /**
   * Forgets the tokens at once, in all tabs, and ends the session at the service.
   * @returns false when the service could not be reached: it ends the session by itself, 7 days
   *   after the last refresh
   */
  logout(): Promise<boolean>;
  /**
   * Reads all records of a list, page by page. Sort, filters and search are those of the list.
   * @throws {ProblemError} when the service refuses a page
   */
  all<Path extends ListPath>(
    path: Path,
    query?: ListQuery<Path>,
  ): AsyncGenerator<ListRecord<Path>, void>;
  /**
   * Reads the changes after a cursor that there are now.
   * @throws {ProblemError} such as `cursor_expired`
   */
  changes(query?: ChangesQuery): AsyncGenerator<Change, void>;
  /**
   * Follows the changes without end, until `signal` is aborted. Connects again by itself, and
   * goes on where it was.
   * @throws {ProblemError} such as `cursor_expired`, or when the user may no longer read
   */
  followChanges(query?: ChangesQuery, signal?: AbortSignal): AsyncGenerator<Change, void>;
}

/**
 * Creates a client of one tenant. It sends the access token, refreshes it once when several
 * requests find it expired, sends an `Idempotency-Key` with each POST, and repeats reads and
 * POSTs whose response is lost or 502, 503 or 504.
 */
export function createBackOffice(options: BackOfficeOptions): BackOffice {
  const { url, tenant, tokens, storage, onTokens, maxRetries = 3, maxWaitMs = 30_000 } = options;
  const baseUrl = url.replace(/\/+$/, '');
  const send = withRetries(options.fetch ?? (request => fetch(request)), { maxRetries, maxWaitMs });
  const session = new Session({ send, baseUrl, tenant, tokens, storage, onTokens });
  const connection = { send: (request: Request) => session.send(request), baseUrl };

  return {
    ...createCalls(connection),
    login: (email, password) => session.login(email, password),
    logout: () => session.logout(),
    // An empty `q` finds all, and makes the service send `Link`.
    all: (path, query) => readPages({ ...connection, path, query: { q: '', ...query } }),
    changes: query => readPages({ ...connection, path: '/api/v1/Changes', query }),
    followChanges: (query = {}, signal) => followChanges(connection, query, signal),
  };
}
