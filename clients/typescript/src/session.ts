import { bodyOf, problemOf } from './problem-error.ts';
import type { SendUntil } from './retries.ts';
import { SessionLedger } from './session-ledger.ts';
import { isBrowser, type TabMessage, Tabs } from './tabs.ts';
import { attempt, type TokenStorage, TokenStore } from './token-store.ts';
import {
  asSessionTokens,
  isNewer,
  isSameSession,
  type LoginResponse,
  type SecondFactor,
  type SessionTokens,
  type Tokens,
  tokensOf,
} from './tokens.ts';

interface SessionOptions {
  /** What the tabs that share sessions have in common. */
  readonly name: string;
  readonly send: SendUntil;
  /** Sends a request once: a stream that fails is opened again by its reader. */
  readonly sendOnce: SendUntil;
  readonly baseUrl: string;
  readonly tenant: string;
  readonly tokens: Tokens | undefined;
  readonly storage: TokenStorage | (() => TokenStorage) | undefined;
  readonly onTokens: ((tokens: Tokens | undefined) => void | Promise<void>) | undefined;
}

/** The response to the request for a stream. */
export interface OpenedStream {
  readonly response: Response;
  /**
   * Replaces the access token that the stream was opened with, unless that has happened.
   * @returns false when the service could not be asked for another one
   */
  readonly renew: () => Promise<boolean>;
}

/** Maximum wait for another tab that has newer tokens. */
const maxAnswerMs = 2_000;

/** The requests below `/api/v1/auth` that open a session. */
type LoginPath = 'login' | 'login/verify' | 'exchange';

/**
 * The tokens of one login. A session ends when the service says so, or when a person logs out:
 * no failure of a network, of a proxy or of a browser's storage ends it.
 */
export class Session {
  readonly #options: SessionOptions;
  readonly #store: TokenStore;
  readonly #ledger: SessionLedger;
  readonly #tabs: Tabs;
  #tokens: SessionTokens | undefined;
  /** The refresh that all requests share which find the access token expired. */
  #refreshing: Promise<Response | undefined> | undefined;
  /** The login that a second press of the same button shares. */
  #loggingIn: { readonly key: string; readonly response: Promise<LoginResponse> } | undefined;
  /** Called with the next change of the tokens. */
  #onChange: (() => void) | undefined;
  /** Called when this tab has another session than before, or none. */
  onSession: (() => void) | undefined;

  constructor(options: SessionOptions) {
    const { name } = options;
    this.#options = options;
    this.#store = new TokenStore(name, options.storage);
    this.#ledger = new SessionLedger(
      name,
      isBrowser ? attempt(() => globalThis.localStorage) : undefined,
    );
    this.#tabs = new Tabs(name, {
      onMessage: message => this.#receive(message),
      onStored: () => void this.#catchUp(),
    });
    this.#tokens = this.#store.read() ?? asSessionTokens(options.tokens);
  }

  /**
   * True while this tab has tokens. The service is not asked: it may have ended their session
   * meanwhile.
   */
  get exists(): boolean {
    const tokens = this.#tokens ?? this.#store.read();
    return tokens !== undefined && !this.#ledger.isEnded(tokens);
  }

  /** The name that the tabs with this session have in common; undefined for a tab alone. */
  get name(): string | undefined {
    return this.#tokens?.session;
  }

  /**
   * Sends a request with the access token. Replaces one that is refused, and sends the request
   * again.
   */
  async send(original: Request, signal?: AbortSignal | null): Promise<Response> {
    const request = withIdempotencyKey(original);
    if (request.headers.has('Authorization')) return this.#options.send(request, signal);

    return (await this.#sendWithToken(request, this.#options.send, signal)).response;
  }

  /** Sends the request for a stream, with the access token. */
  async openStream(request: Request, signal?: AbortSignal): Promise<OpenedStream> {
    const { response, used } = await this.#sendWithToken(request, this.#options.sendOnce, signal);

    return {
      response,
      renew: async () => {
        if (used === undefined || this.#tokens !== used) return true;
        return (await this.#refreshOnce(used)) === undefined;
      },
    };
  }

  /** @returns the response, and the tokens that it was requested with */
  async #sendWithToken(
    request: Request,
    send: SendUntil,
    signal: AbortSignal | null | undefined,
  ): Promise<{ response: Response; used: SessionTokens | undefined }> {
    await this.#catchUp();
    const used = this.#tokens;
    if (!used) return { response: await send(this.#anonymous(request), signal), used };

    const response = await send(authorized(request.clone(), used), signal);
    if (!(await isTokenRefused(response))) return { response, used };

    if (this.#tokens === used) {
      const refusal = await this.#refreshOnce(used);
      if (refusal) return { response: refusal.clone(), used };
    }

    const renewed = this.#tokens;
    if (!renewed) return { response, used };
    return { response: await send(authorized(request, renewed), signal), used: renewed };
  }

  /** @throws {ProblemError} when the service refuses the login */
  login(email: string, password: string): Promise<LoginResponse> {
    return this.#logInOnce('login', { email, password });
  }

  /** @throws {ProblemError} when the service refuses the code */
  verifyLogin(challenge: string, proof: SecondFactor): Promise<LoginResponse> {
    return this.#logInOnce('login/verify', { challenge, ...proof });
  }

  /** @throws {ProblemError} when the service refuses the ID token */
  loginWithIdToken(idToken: string): Promise<LoginResponse> {
    return this.#logInOnce('exchange', { idToken });
  }

  #logInOnce(path: LoginPath, body: object): Promise<LoginResponse> {
    const key = JSON.stringify([path, body]);
    if (this.#loggingIn?.key === key) return this.#loggingIn.response;

    const loggingIn = { key, response: this.#logIn(path, body) };
    const end = (): void => {
      if (this.#loggingIn === loggingIn) this.#loggingIn = undefined;
    };
    this.#loggingIn = loggingIn;
    loggingIn.response.then(end, end);

    return loggingIn.response;
  }

  /**
   * Forgets the tokens at once, in all tabs that have them, and then ends the session at the
   * service.
   * @returns false when the service could not be reached, or did not end it
   */
  async logout(): Promise<boolean> {
    await this.#catchUp();
    const tokens = this.#tokens;
    if (!tokens) return true;

    this.#ledger.end(tokens);
    const isNotified = this.#replace(undefined);
    const isEnded = await this.#endAtService(tokens).catch(() => false);
    if (isEnded) this.#ledger.forget(tokens);
    await isNotified;

    return isEnded;
  }

  async #logIn(path: LoginPath, body: object): Promise<LoginResponse> {
    const response = await bodyOf<LoginResponse>(await this.#post(path, body));
    const tokens: SessionTokens = { ...tokensOf(response), session: randomId(), number: 0 };
    this.#store.write(tokens);
    this.#ledger.keep(tokens);
    await this.#set(tokens);

    return response;
  }

  /** Follows what other tabs have stored, of which a message may not have arrived. */
  async #catchUp(): Promise<void> {
    const own = this.#tokens;
    const stored = this.#store.read();

    if (stored && this.#ledger.isEnded(stored)) {
      this.#store.write(undefined);
    } else if (stored && stored.refreshToken !== own?.refreshToken) {
      if (!own || !isNewer(own, stored)) return this.#set(stored);
    }

    if (own && this.#ledger.isEnded(own)) await this.#end();
  }

  #receive(message: TabMessage): void {
    const { kind, tokens } = message;
    const [own, stored] = [this.#tokens, this.#store.read()];

    if (kind === 'ask') {
      if (own && isNewer(own, tokens)) {
        this.#tabs.send({ kind: 'replaced', former: tokens, tokens: own });
      }
      return;
    }

    const { former } = message;
    const isReplaced = (each: SessionTokens): boolean =>
      isSameSession(each, former) &&
      (!tokens || each.refreshToken === former.refreshToken || isNewer(tokens, each));
    // of this tab alone, as `sessionStorage`
    if (stored && isReplaced(stored)) this.#store.write(tokens);
    if (own && isReplaced(own)) void this.#set(tokens);
  }

  #refreshOnce(refused: SessionTokens): Promise<Response | undefined> {
    this.#refreshing ??= this.#tabs
      .alone(() => this.#refresh(refused))
      .finally(() => {
        this.#refreshing = undefined;
      });

    return this.#refreshing;
  }

  /**
   * Gets new tokens for those that were refused, unless another tab has done so.
   * @returns the refusal; undefined when there are new tokens, or the session has ended here
   */
  async #refresh(refused: SessionTokens): Promise<Response | undefined> {
    await this.#catchUp();
    if (this.#tokens === refused && this.#ledger.isExchanged(refused)) await this.#askTabs(refused);
    if (this.#tokens !== refused) return undefined;

    const response = await this.#post('refresh', { refreshToken: refused.refreshToken });
    const received = await tokensIn(response);
    const isEnded = !received && (await isSessionEnded(response));
    // Otherwise a person has logged out or in meanwhile, or another tab was faster.
    const isCurrent = this.#tokens === refused;

    if (received && isCurrent) {
      await this.#replace({ ...received, session: refused.session, number: refused.number + 1 });
    } else if (isEnded && isCurrent) {
      this.#ledger.forget(refused);
      await this.#replace(undefined);
    }

    if (received || !isCurrent) return undefined;
    // A page or a text of another program, which is no answer to the request that waits.
    return response.ok ? new Response(null, { status: 502, statusText: 'Bad Gateway' }) : response;
  }

  /**
   * Gets the newest tokens from the tab that has them. Without a response, this tab has no
   * session any more: its refresh token was exchanged, and to send it would end the session of
   * the other tab, too.
   */
  async #askTabs(exchanged: SessionTokens): Promise<void> {
    const changed = new Promise<void>(resolve => {
      this.#onChange = resolve;
    });
    this.#tabs.send({ kind: 'ask', tokens: exchanged });
    await Promise.race([changed, new Promise(resolve => setTimeout(resolve, maxAnswerMs))]);

    if (this.#tokens === exchanged) await this.#end();
  }

  /** Forgets the tokens in this tab. */
  async #end(): Promise<void> {
    this.#store.write(undefined);
    await this.#set(undefined);
  }

  /** Takes the place of the present tokens, also in other tabs. */
  async #replace(tokens: SessionTokens | undefined): Promise<void> {
    const former = this.#tokens;
    this.#store.write(tokens);
    if (tokens) this.#ledger.keep(tokens);
    if (former) this.#tabs.send({ kind: 'replaced', former, tokens });
    await this.#set(tokens);
  }

  /** Uses other tokens from now on, and lets the application store them. */
  async #set(tokens: SessionTokens | undefined): Promise<void> {
    const isSame = tokens?.session === this.#tokens?.session;
    this.#tokens = tokens;
    this.#onChange?.();
    if (!isSame) this.onSession?.();
    await this.#options.onTokens?.(tokens && tokensOf(tokens));
  }

  async #endAtService(tokens: SessionTokens): Promise<boolean> {
    const { send, baseUrl } = this.#options;
    // The request goes on when the page is left.
    const logOut = ({ accessToken }: Tokens): Promise<Response> =>
      send(
        new Request(`${baseUrl}/api/v1/auth/logout`, {
          method: 'POST',
          keepalive: true,
          headers: { Authorization: `Bearer ${accessToken}` },
        }),
      );

    const response = await logOut(tokens);
    if (!(await isTokenRefused(response))) return response.status === 204;

    const refreshed = await this.#post('refresh', { refreshToken: tokens.refreshToken });
    const newTokens = await tokensIn(refreshed);
    if (!newTokens) return isSessionEnded(refreshed);

    return (await logOut(newTokens)).status === 204;
  }

  #post(path: string, body: object): Promise<Response> {
    const { send, baseUrl, tenant } = this.#options;
    return send(
      new Request(`${baseUrl}/api/v1/auth/${path}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'X-Tenant': tenant },
        body: JSON.stringify(body),
      }),
    );
  }

  /** Without a token, the service finds out by the tenant that the caller must log in: 401. */
  #anonymous(request: Request): Request {
    if (!request.headers.has('X-Tenant')) request.headers.set('X-Tenant', this.#options.tenant);
    return request;
  }
}

/** True for a token that has expired, or whose signing key was disabled: a refresh may help. */
async function isTokenRefused(response: Response): Promise<boolean> {
  if (response.status !== 401) return false;

  const code = (await problemOf(response))?.code;
  return code === 'token_expired' || code === 'invalid_token';
}

/**
 * True for the response to a refresh by which the service, not a proxy, says that the session
 * has ended.
 */
async function isSessionEnded(response: Response): Promise<boolean> {
  return response.status === 401 && (await problemOf(response))?.code === 'invalid_refresh_token';
}

/**
 * Returns the tokens in a response; undefined in any other one, such as the page of a network's
 * login.
 */
async function tokensIn(response: Response): Promise<Tokens | undefined> {
  if (!response.ok) return undefined;

  const tokens = asSessionTokens(
    await response
      .clone()
      .json()
      .catch(() => undefined),
  );
  return tokens && tokensOf(tokens);
}

function authorized(request: Request, { accessToken }: Tokens): Request {
  request.headers.set('Authorization', `Bearer ${accessToken}`);
  return request;
}

/**
 * With the key, the service makes the change of a repeated POST once. It takes none for
 * `/api/v1/auth`.
 */
export function withIdempotencyKey(request: Request): Request {
  const isChange = request.method === 'POST' && !request.url.includes('/api/v1/auth/');
  if (isChange && !request.headers.has('Idempotency-Key')) {
    request.headers.set('Idempotency-Key', randomId());
  }
  return request;
}

/** `crypto.randomUUID` exists in secure contexts only: not in a page of http. */
function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), byte =>
    byte.toString(16).padStart(2, '0'),
  ).join('');
}
