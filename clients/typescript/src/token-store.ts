import { asSessionTokens, type SessionTokens } from './tokens.ts';

/** A part of `localStorage` or `sessionStorage`. */
export type TokenStorage = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

/**
 * The tokens in the storage of a browser. A storage that is blocked, full or damaged never
 * fails a call: the session is then in memory alone.
 */
export class TokenStore {
  readonly #name: string;
  readonly #storage: TokenStorage | undefined;

  /**
   * @param storage or a function that returns it: where storage is blocked, its name alone
   *   throws
   */
  constructor(name: string, storage: TokenStorage | (() => TokenStorage) | undefined) {
    this.#name = name;
    this.#storage = typeof storage === 'function' ? attempt(storage) : storage;
  }

  /** Returns the stored tokens; undefined when there are none that can be read. */
  read(): SessionTokens | undefined {
    return attempt(() => asSessionTokens(JSON.parse(this.#storage?.getItem(this.#name) ?? 'null')));
  }

  /**
   * Stores tokens, or removes those that are stored. Tokens for which there is no room take the
   * former ones with them: a page that is loaded later would send a refresh token that was
   * exchanged, which ends the session as a theft.
   */
  write(tokens: SessionTokens | undefined): void {
    const isStored = tokens && attempt(() => this.#set(tokens));
    if (!isStored) attempt(() => this.#storage?.removeItem(this.#name));
  }

  #set(tokens: SessionTokens): true {
    this.#storage?.setItem(this.#name, JSON.stringify(tokens));
    return true;
  }
}

/** Returns what `access` returns; undefined when it throws. */
export function attempt<T>(access: () => T): T | undefined {
  try {
    return access();
  } catch {
    return undefined;
  }
}
