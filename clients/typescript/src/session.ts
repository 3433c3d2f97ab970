import type { components } from './api.ts';
import { bodyOf, problemOf } from './problem-error.ts';

type LoginResponse = components['schemas']['LoginResponse'];
export type Tokens = Pick<LoginResponse, 'accessToken' | 'refreshToken'>;

type Send = (request: Request) => Promise<Response>;

interface SessionOptions {
  send: Send;
  baseUrl: string;
  tenant: string;
  tokens: Tokens | undefined;
  onTokens: ((tokens: Tokens | undefined) => void | Promise<void>) | undefined;
}

interface Session {
  /** Sends a request with the access token. Refreshes an expired one, and sends the request again. */
  send: Send;
  login(email: string, password: string): Promise<LoginResponse>;
  logout(): Promise<void>;
}

/** The tokens of one login. Requests that find the access token expired at the same time share one refresh. */
export function createSession({ send, baseUrl, tenant, onTokens, ...options }: SessionOptions): Session {
  let { tokens } = options;
  let refreshing: Promise<Response> | undefined;

  const store = async (response: LoginResponse | undefined): Promise<void> => {
    const stored = response && { accessToken: response.accessToken, refreshToken: response.refreshToken };
    await onTokens?.(stored);
    tokens = stored;
  };

  const post = (path: string, body: object): Promise<Response> =>
    send(
      new Request(`${baseUrl}/api/v1/auth/${path}`, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'X-Tenant': tenant },
        body: JSON.stringify(body),
      }),
    );

  /** A refresh token counts once: a second refresh with the same one would end the session. */
  const refresh = async (refreshToken: string): Promise<Response> => {
    const response = await post('refresh', { refreshToken });
    if (response.ok) await store(await bodyOf<LoginResponse>(response.clone()));
    else if (response.status === 401) await store(undefined);
    return response;
  };

  const sendWithToken: Send = async original => {
    const request = withKey(original);
    const used = tokens;
    if (used === undefined || request.headers.has('Authorization')) return send(request);
    const response = await send(authorized(request.clone(), used));
    if (response.status !== 401 || (await problemOf(response))?.code !== 'token_expired') return response;
    if (tokens === used) {
      refreshing ??= refresh(used.refreshToken).finally(() => (refreshing = undefined));
      const refreshed = await refreshing;
      if (!refreshed.ok) return refreshed.clone();
    }
    return tokens === undefined ? response : send(authorized(request, tokens));
  };

  return {
    send: sendWithToken,
    login: async (email, password) => {
      const response = await bodyOf<LoginResponse>(await post('login', { email, password }));
      await store(response);
      return response;
    },
    logout: async () => {
      const response = await sendWithToken(new Request(`${baseUrl}/api/v1/auth/logout`, { method: 'POST' }));
      if (response.status !== 401) await bodyOf(response); // after 401, the session had ended before
      await store(undefined);
    },
  };
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
