import type { components } from './api.ts';
import { bodyOf, problemOf } from './problem-error.ts';
import { connectTabs, type TokenStorage } from './tabs.ts';

type LoginResponse = components['schemas']['LoginResponse'];
export type Tokens = Pick<LoginResponse, 'accessToken' | 'refreshToken'>;

type Send = (request: Request) => Promise<Response>;

interface SessionOptions {
  send: Send;
  baseUrl: string;
  tenant: string;
  tokens: Tokens | undefined;
  storage: TokenStorage | undefined;
  onTokens: ((tokens: Tokens | undefined) => void | Promise<void>) | undefined;
}

interface Session {
  /** Sends a request with the access token. Replaces one that is refused, and sends the request again. */
  send: Send;
  login(email: string, password: string): Promise<LoginResponse>;
  logout(): Promise<void>;
}

/**
 * The tokens of one login. Requests that find the access token expired at the same time share one refresh, those of
 * other tabs with the same session too.
 */
export function createSession({ send, baseUrl, tenant, storage, onTokens, ...options }: SessionOptions): Session {
  const tabs = connectTabs({
    name: `back-office ${baseUrl} ${tenant}`,
    storage,
    onReplaced: replacement => {
      if (replacement.refreshToken === tokens?.refreshToken) void adopt(replacement.tokens);
    },
  });
  let tokens = options.tokens ?? tabs.stored();
  let refreshing: Promise<Response | undefined> | undefined;

  const adopt = async (replacing: Tokens | undefined): Promise<void> => {
    await onTokens?.(replacing);
    tokens = replacing;
  };

  const store = async (response: LoginResponse | undefined, isLogin = false): Promise<void> => {
    const replacing = response && { accessToken: response.accessToken, refreshToken: response.refreshToken };
    const former = tokens;
    await adopt(replacing);
    tabs.replace(former, replacing, isLogin);
  };

  const post = (path: string, body: object): Promise<Response> =>
    send(
      new Request(`${baseUrl}/api/v1/auth/${path}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'X-Tenant': tenant },
        body: JSON.stringify(body),
      }),
    );

  /**
   * Gets new tokens for those that were refused, unless another tab has done so. A refresh token counts once: a second
   * refresh with the same one, more than a minute later, would end the session.
   * @returns the refusal; undefined when there are new tokens, or the session has ended in another tab
   */
  const refresh = async (refused: Tokens): Promise<Response | undefined> => {
    const stored = tabs.stored();
    if (stored && stored.refreshToken !== refused.refreshToken) await adopt(stored);
    if (tokens !== refused) return undefined;
    const response = await post('refresh', { refreshToken: refused.refreshToken });
    if (response.ok) await store(await bodyOf<LoginResponse>(response));
    else if (response.status === 401) await store(undefined);
    return response.ok ? undefined : response;
  };

  const sendWithToken: Send = async original => {
    const request = withKey(original);
    const used = tokens;
    if (request.headers.has('Authorization')) return send(request);
    if (used === undefined) return send(anonymous(request));
    const response = await send(authorized(request.clone(), used));
    if (!(await isTokenRefused(response))) return response;
    if (tokens === used) {
      refreshing ??= tabs.alone(() => refresh(used)).finally(() => (refreshing = undefined));
      const refusal = await refreshing;
      if (refusal) return refusal.clone();
    }
    if (tokens === undefined) return response;
    const current = tokens;
    const repeated = await send(authorized(request, current));
    if ((await isTokenRefused(repeated)) && tokens === current) await store(undefined);
    return repeated;
  };

  /** Without a token, the service finds out by the tenant that the caller must log in, and responds with 401. */
  const anonymous = (request: Request): Request => {
    if (!request.headers.has('X-Tenant')) request.headers.set('X-Tenant', tenant);
    return request;
  };

  return {
    send: sendWithToken,
    login: async (email, password) => {
      const response = await bodyOf<LoginResponse>(await post('login', { email, password }));
      await store(response, true);
      return response;
    },
    logout: async () => {
      const response = await sendWithToken(new Request(`${baseUrl}/api/v1/auth/logout`, { method: 'POST' }));
      if (response.status !== 401) await bodyOf(response); // after 401, the session had ended before
      if (tokens) await store(undefined);
    },
  };
}

/** True for a token that has expired, or whose signing key was disabled: a refresh may help. */
async function isTokenRefused(response: Response): Promise<boolean> {
  if (response.status !== 401) return false;
  const code = (await problemOf(response))?.code;
  return code === 'token_expired' || code === 'invalid_token';
}

function authorized(request: Request, { accessToken }: Tokens): Request {
  request.headers.set('Authorization', `Bearer ${accessToken}`);
  return request;
}

/** With the key, the service makes the change of a repeated POST once. It takes none for `/api/v1/auth`. */
function withKey(request: Request): Request {
  const isChange = request.method === 'POST' && !request.url.includes('/api/v1/auth/');
  if (isChange && !request.headers.has('Idempotency-Key')) request.headers.set('Idempotency-Key', crypto.randomUUID());
  return request;
}
