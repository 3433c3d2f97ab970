import { Agent, type OutgoingHttpHeaders, request } from 'node:http';
import { checkResponse, type ReceivedHeaders } from './contract.ts';

/** A response; a JSON body is parsed. */
export interface ApiResponse {
  status: number;
  headers: ReceivedHeaders;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert what the service has sent
  body: any;
}

interface Tokens {
  accessToken: string;
  refreshToken: string;
}

/**
 * A REST client over real HTTP, with or without a user's token. Throws if a response violates
 * the OpenAPI document.
 */
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

  /** Sends a JSON merge patch. */
  patch(path: string, body?: unknown, headers: Record<string, string> = {}): Promise<ApiResponse> {
    return this.send('PATCH', path, body, {
      'Content-Type': 'application/merge-patch+json',
      ...headers,
    });
  }

  delete(path: string, headers: Record<string, string> = {}): Promise<ApiResponse> {
    return this.send('DELETE', path, undefined, headers);
  }

  /** @param body strings and bytes are sent unchanged, anything else is sent as JSON */
  async send(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<ApiResponse> {
    const raw =
      typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body);
    const response = await exchange(method, `${this.url}${path}`, raw, {
      ...(this.tokens ? { Authorization: `Bearer ${this.tokens.accessToken}` } : {}),
      ...(raw === undefined
        ? {}
        : { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(raw) }),
      ...headers,
    });
    const isJson = /json/.test(response.headers.get('content-type') ?? '');
    const received = { ...response, body: isJson ? JSON.parse(response.body) : response.body };
    checkResponse(method, `${this.url}${path}`, received);
    return received;
  }
}

const agent = new Agent({ keepAlive: true });

/**
 * Sends a request and receives its response. `fetch` takes twice the CPU time, and lets the
 * service compress.
 */
function exchange(
  method: string,
  url: string,
  sent: string | Uint8Array | undefined,
  headers: OutgoingHttpHeaders,
) {
  return new Promise<ApiResponse>((resolve, reject) => {
    const outgoing = request(url, { method, headers, agent }, response => {
      const chunks: Buffer[] = [];
      response
        .on('data', (chunk: Buffer) => chunks.push(chunk))
        .on('error', reject)
        .on('end', () => {
          const { statusCode: status = 0, rawHeaders } = response;
          resolve({
            status,
            headers: new ResponseHeaders(rawHeaders),
            body: Buffer.concat(chunks).toString(),
          });
        });
    });
    outgoing.on('error', reject).end(sent);
  });
}

class ResponseHeaders implements ReceivedHeaders {
  readonly #values = new Map<string, string>();

  /** @param raw names and values in turn */
  constructor(raw: readonly string[]) {
    for (let i = 0; i < raw.length; i += 2) {
      const [name = '', value = ''] = [raw[i]?.toLowerCase(), raw[i + 1]];
      const earlier = this.#values.get(name);
      this.#values.set(name, earlier === undefined ? value : `${earlier}, ${value}`);
    }
  }

  get(name: string): string | null {
    return this.#values.get(name.toLowerCase()) ?? null;
  }

  has(name: string): boolean {
    return this.#values.has(name.toLowerCase());
  }

  keys(): Iterable<string> {
    return [...this.#values.keys()].sort();
  }

  *[Symbol.iterator](): Iterator<[string, string]> {
    for (const name of this.keys()) yield [name, this.#values.get(name) ?? ''];
  }
}
