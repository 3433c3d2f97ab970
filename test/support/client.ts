import { checkResponse } from './contract.ts';

/** A response; a JSON body is parsed. */
export interface ApiResponse {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: the body is whatever the service sent; tests assert what it must be
  body: any;
}

interface Tokens {
  accessToken: string;
  refreshToken: string;
}

/** A REST client over real HTTP, with or without a user's token. Throws if a response violates the OpenAPI document. */
export class Client {
  readonly url: string;
  readonly tokens: Tokens | undefined;

  constructor(url: string, tokens?: Tokens) {
    this.url = url;
    this.tokens = tokens;
  }

  /** Returns a client of the same user for another process of the service. */
  at(url: string): Client {
    return new Client(url, this.tokens);
  }

  /** Returns a client for the same URL with another access token. */
  withToken(accessToken: string): Client {
    return new Client(this.url, { accessToken, refreshToken: '' });
  }

  get(path: string, headers: Record<string, string> = {}): Promise<ApiResponse> {
    return this.send('GET', path, undefined, headers);
  }

  post(path: string, body?: unknown, headers: Record<string, string> = {}): Promise<ApiResponse> {
    return this.send('POST', path, body, headers);
  }

  put(path: string, body?: unknown, headers: Record<string, string> = {}): Promise<ApiResponse> {
    return this.send('PUT', path, body, headers);
  }

  delete(path: string, headers: Record<string, string> = {}): Promise<ApiResponse> {
    return this.send('DELETE', path, undefined, headers);
  }

  /** @param body strings and bytes are sent unchanged, anything else is sent as JSON */
  async send(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<ApiResponse> {
    const raw = typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body);
    const response = await fetch(`${this.url}${path}`, {
      method,
      redirect: 'manual',
      headers: {
        ...(this.tokens ? { Authorization: `Bearer ${this.tokens.accessToken}` } : {}),
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
      ...(raw === undefined ? {} : { body: raw as string }),
    });
    const text = await response.text();
    const isJson = /json/.test(response.headers.get('content-type') ?? '');
    const received = { status: response.status, headers: response.headers, body: isJson ? JSON.parse(text) : text };
    checkResponse(method, response.url, received);
    return received;
  }
}
