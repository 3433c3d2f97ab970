import { checkAnswer } from './contract.ts';

/** An answer, with its body parsed when it is JSON. */
export interface Answer {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: a body is whatever the service sent; tests say what it must be
  body: any;
}

interface Tokens {
  accessToken: string;
  refreshToken: string;
}

/** A REST client over real HTTP, with or without a user's token. It refuses answers that are not as documented. */
export class Client {
  readonly url: string;
  readonly tokens: Tokens | undefined;

  constructor(url: string, tokens?: Tokens) {
    this.url = url;
    this.tokens = tokens;
  }

  /** The same user at another process of the service. */
  at(url: string): Client {
    return new Client(url, this.tokens);
  }

  /** The same address with another access token. */
  withToken(accessToken: string): Client {
    return new Client(this.url, { accessToken, refreshToken: '' });
  }

  get(path: string, headers: Record<string, string> = {}): Promise<Answer> {
    return this.send('GET', path, undefined, headers);
  }

  post(path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    return this.send('POST', path, body, headers);
  }

  put(path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Answer> {
    return this.send('PUT', path, body, headers);
  }

  delete(path: string, headers: Record<string, string> = {}): Promise<Answer> {
    return this.send('DELETE', path, undefined, headers);
  }

  /** @param body a string or bytes are sent as they are, anything else as JSON */
  async send(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Answer> {
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
    const answer = { status: response.status, headers: response.headers, body: isJson ? JSON.parse(text) : text };
    checkAnswer(method, response.url, answer);
    return answer;
  }
}
