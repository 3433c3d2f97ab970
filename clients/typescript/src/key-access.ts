import type { SendUntil } from './retries.ts';
import { type OpenedStream, withIdempotencyKey } from './session.ts';

interface KeyAccessOptions {
  readonly key: string;
  readonly send: SendUntil;
  /** Sends a request once: a stream that fails is opened again by its reader. */
  readonly sendOnce: SendUntil;
}

/** The access of a program, whose key is its token: there is no login, and nothing to refresh. */
export class KeyAccess {
  /** A program has no tabs. */
  readonly name = undefined;
  readonly exists = true;
  /** A key is never replaced by that of another session. */
  onSession: (() => void) | undefined;
  readonly #options: KeyAccessOptions;

  constructor(options: KeyAccessOptions) {
    this.#options = options;
  }

  async send(original: Request, signal?: AbortSignal | null): Promise<Response> {
    const request = withIdempotencyKey(original);
    return this.#options.send(this.#authorized(request), signal);
  }

  async openStream(request: Request, signal?: AbortSignal): Promise<OpenedStream> {
    const response = await this.#options.sendOnce(this.#authorized(request), signal);
    return { response, renew: async () => true };
  }

  /** @throws {Error} always */
  async login(): Promise<never> {
    throw new Error('A client with a key does not log in: the key is all that it needs.');
  }

  /** @throws {Error} always */
  loginWithIdToken(): Promise<never> {
    return this.login();
  }

  /** @throws {Error} always */
  verifyLogin(): Promise<never> {
    return this.login();
  }

  /** @throws {Error} always */
  async logout(): Promise<never> {
    throw new Error('A client with a key has no session to end. An administrator revokes the key.');
  }

  #authorized(request: Request): Request {
    if (!request.headers.has('Authorization')) {
      request.headers.set('Authorization', `Bearer ${this.#options.key}`);
    }
    return request;
  }
}
