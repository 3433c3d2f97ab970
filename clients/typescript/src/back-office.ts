import type { components } from './api.ts';
import { type Calls, createCalls } from './calls.ts';
import type { Change } from './change-stream.ts';
import {
  type ChangesQuery,
  type FollowedChanges,
  type FollowQuery,
  followChanges,
} from './changes.ts';
import { KeyAccess } from './key-access.ts';
import { type ListPath, type ListQuery, type ListRecord, readPages } from './pages.ts';
import { type SendUntil, withRetries } from './retries.ts';
import { Session } from './session.ts';
import { SharedChanges } from './shared-changes.ts';
import type { TokenStorage } from './token-store.ts';
import type { SecondFactor, Tokens } from './tokens.ts';

export type { components, paths } from './api.ts';
export type { CallError, CallResult } from './calls.ts';
export type { Change, ChangeInclude, FollowStatus, StatusListener } from './change-stream.ts';
export type { ChangesQuery, FollowedChanges, FollowQuery } from './changes.ts';
export type { ListPath, ListQuery, ListRecord } from './pages.ts';
export { ProblemError } from './problem-error.ts';
export type { TokenStorage } from './token-store.ts';
export type { SecondFactor, Tokens } from './tokens.ts';

interface CommonOptions {
  /** The address of the service, such as `https://api.example.com`. */
  url: string;
  /** Repetitions of one request; 3 by default. */
  maxRetries?: number;
  /** The longest `Retry-After` that is waited for, in ms; 30 s by default. */
  maxWaitMs?: number;
  /** Replaces `fetch`, to use a proxy for instance. */
  fetch?: (request: Request) => Promise<Response>;
}

/** For a person, who logs in. */
export interface LoginOptions extends CommonOptions {
  /** The guid of the tenant, or its slug. */
  tenant: string;
  key?: undefined;
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
}

/** For a program, which has a key. */
export interface KeyOptions extends CommonOptions {
  /** The key of the program, `sbk_…`, in place of a login. It says which tenant it is of. */
  key: string;
  tenant?: undefined;
  tokens?: undefined;
  storage?: undefined;
  onTokens?: undefined;
}

export type BackOfficeOptions = LoginOptions | KeyOptions;

/**
 * `GET`, `POST`, `PUT`, `PATCH` and `DELETE` with the paths and types of the API, and what is
 * made of them.
 */
export interface BackOffice extends Calls {
  /**
   * True while there are tokens: a page may begin without a login. The service is not asked, so
   * a session that it has ended counts until the next request. Always true with a key.
   */
  readonly hasSession: boolean;
  /**
   * @throws {ProblemError} when the service refuses the login. With `second_factor_required`,
   *   `problem.challenge` is what `verifyLogin` completes
   * @throws {Error} with a key
   */
  login(email: string, password: string): Promise<components['schemas']['LoginResponse']>;
  /**
   * Logs in with the ID token of a provider of `GET /api/v1/auth/providers`, at which the page
   * has signed the person in, with a nonce. The token is good once, for ten minutes.
   * @throws {ProblemError} `invalid_id_token`: sign in there again; `second_factor_required` as
   *   after a password
   * @throws {Error} with a key
   */
  loginWithIdToken(idToken: string): Promise<components['schemas']['LoginResponse']>;
  /**
   * Completes a login by a second factor, within five minutes.
   * @param challenge of the refused login
   * @throws {ProblemError} `invalid_code`: ask for another code, five times at most;
   *   `invalid_challenge`: begin the login again
   * @throws {Error} with a key
   */
  verifyLogin(
    challenge: string,
    proof: SecondFactor,
  ): Promise<components['schemas']['LoginResponse']>;
  /**
   * Forgets the tokens at once, in all tabs, and ends the session at the service.
   * @returns false when the service could not be reached: it ends the session by itself, 7 days
   *   after the last refresh
   * @throws {Error} with a key, which has no session
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
 * Creates a client of one tenant. It sends the key of a program, or else the access token of a
 * login, which it refreshes once when several requests find it expired. It sends an
 * `Idempotency-Key` with each POST, and repeats reads and POSTs whose response is lost or 502,
 * 503 or 504.
 * @throws {TypeError} without a tenant and without a key
 */
export function createBackOffice(options: BackOfficeOptions): BackOffice {
  const { url, maxRetries = 3, maxWaitMs = 30_000 } = options;
  if (!options.key && !options.tenant) throw new TypeError('Name the tenant, or pass a key.');
  const baseUrl = url.replace(/\/+$/, '');
  const sendOnce = options.fetch ?? (request => fetch(request));
  const sending = {
    send: withRetries(sendOnce, { maxRetries, maxWaitMs }),
    sendOnce: withRetries(sendOnce, { maxRetries: 0, maxWaitMs }),
  };
  const name = `back-office ${baseUrl} ${options.tenant}`;
  const session =
    options.key === undefined
      ? openSession(name, baseUrl, sending, options)
      : new KeyAccess({ ...sending, key: options.key });
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
    loginWithIdToken: idToken => session.loginWithIdToken(idToken),
    verifyLogin: (challenge, proof) => session.verifyLogin(challenge, proof),
    logout: () => session.logout(),
    // An empty `q` finds all, and makes the service send `Link`.
    all: (path, query) => readPages({ ...connection, path, query: { q: '', ...query } }),
    changes: query => readPages({ ...connection, path: '/api/v1/Changes', query }),
    followChanges: (query, signal) =>
      followChanges({ ...connection, shared }, query ?? ({} as never), signal),
  };
}

function openSession(
  name: string,
  baseUrl: string,
  sending: { readonly send: SendUntil; readonly sendOnce: SendUntil },
  { tenant, tokens, storage, onTokens }: LoginOptions,
): Session {
  return new Session({ ...sending, name, baseUrl, tenant, tokens, storage, onTokens });
}
