import type { components } from './api.ts';
import { type Calls, createCalls } from './calls.ts';
import type { Change } from './change-stream.ts';
import {
  type ChangesQuery,
  type FollowedChanges,
  type FollowQuery,
  followChanges,
} from './changes.ts';
import { type ListPath, type ListQuery, type ListRecord, readPages } from './pages.ts';
import { withRetries } from './retries.ts';
import { Session } from './session.ts';
import { SharedChanges } from './shared-changes.ts';
import type { TokenStorage } from './token-store.ts';
import type { Tokens } from './tokens.ts';

export type { components, paths } from './api.ts';
export type { CallError, CallResult } from './calls.ts';
export type { Change, ChangeInclude, FollowStatus, StatusListener } from './change-stream.ts';
export type { ChangesQuery, FollowedChanges, FollowQuery } from './changes.ts';
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
  /**
   * True while there are tokens: a page may begin without a login. The service is not asked, so
   * a session that it has ended counts until the next request.
   */
  readonly hasSession: boolean;
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
   * Follows the changes from the moment of the call on, without end, until `signal` is aborted.
   * Connects again by itself, and goes on where it was. The tabs of a session share one stream.
   * @throws {ProblemError} such as `cursor_expired`, or when the user may no longer read
   */
  followChanges<Query extends FollowQuery>(
    query?: Query,
    signal?: AbortSignal,
  ): FollowedChanges<Query>;
}

/**
 * Creates a client of one tenant. It sends the access token, refreshes it once when several
 * requests find it expired, sends an `Idempotency-Key` with each POST, and repeats reads and
 * POSTs whose response is lost or 502, 503 or 504.
 */
export function createBackOffice(options: BackOfficeOptions): BackOffice {
  const { url, tenant, tokens, storage, onTokens, maxRetries = 3, maxWaitMs = 30_000 } = options;
  const baseUrl = url.replace(/\/+$/, '');
  const sendOnce = options.fetch ?? (request => fetch(request));
  const send = withRetries(sendOnce, { maxRetries, maxWaitMs });
  const name = `back-office ${baseUrl} ${tenant}`;
  const session = new Session({
    name,
    send,
    sendOnce: withRetries(sendOnce, { maxRetries: 0, maxWaitMs }),
    baseUrl,
    tenant,
    tokens,
    storage,
    onTokens,
  });
  const connection = {
    baseUrl,
    send: (request: Request, signal?: AbortSignal | null) => session.send(request, signal),
    openStream: (request: Request, signal?: AbortSignal) => session.openStream(request, signal),
  };
  const shared = new SharedChanges(name, connection, session);

  return {
    ...createCalls(connection),
    get hasSession() {
      return session.exists;
    },
    login: (email, password) => session.login(email, password),
    logout: () => session.logout(),
    // An empty `q` finds all, and makes the service send `Link`.
    all: (path, query) => readPages({ ...connection, path, query: { q: '', ...query } }),
    changes: query => readPages({ ...connection, path: '/api/v1/Changes', query }),
    followChanges: (query, signal) =>
      followChanges({ ...connection, shared }, query ?? ({} as never), signal),
  };
}
