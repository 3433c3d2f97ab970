import { attempt } from './token-store.ts';
import type { SessionTokens } from './tokens.ts';

/** A session ends 30 days after its login. */
const maxAgeMs = 30 * 24 * 3_600_000;

interface Entry {
  /** The number of the newest tokens; absent from the entry of a logout. */
  readonly number?: number;
  /** When it was written, in ms since 1970. */
  readonly at: number;
}

/**
 * The progress of each session of this browser, in `localStorage`, without a secret. A tab
 * that was frozen, discarded or duplicated learns from it, without another tab that responds,
 * that its refresh token was exchanged, or that a person has logged out. A logout has an entry
 * of its own: a tab that has not yet seen it, because the browser passes on late what is
 * stored, writes the number of its tokens and leaves the logout as it is. Where storage is
 * blocked or cleared, the ledger knows of no session.
 */
export class SessionLedger {
  readonly #prefix: string;
  readonly #storage: Storage | undefined;

  /** @param name what the tabs that share sessions have in common */
  constructor(name: string, storage: Storage | undefined) {
    this.#prefix = `${name} session `;
    this.#storage = storage;
  }

  /** True when a person has logged out of the session. */
  isEnded(tokens: SessionTokens): boolean {
    return this.#read(tokens.session && endOf(tokens.session)) !== undefined;
  }

  /** True when the refresh token was exchanged by another tab. */
  isExchanged(tokens: SessionTokens): boolean {
    return (this.#read(tokens.session)?.number ?? 0) > tokens.number;
  }

  /** Stores that these are the newest tokens of their session. */
  keep({ session, number }: SessionTokens): void {
    this.#write(session, { number, at: Date.now() });
  }

  /** Stores that a person has logged out of the session. */
  end({ session }: SessionTokens): void {
    this.#write(session && endOf(session), { at: Date.now() });
  }

  /** Removes a session that the service has ended, and those that it must have ended since. */
  forget({ session }: SessionTokens): void {
    const storage = this.#storage;
    for (const name of session ? [session, endOf(session)] : []) {
      attempt(() => storage?.removeItem(this.#prefix + name));
    }
    attempt(() => {
      for (const key of Object.keys(storage ?? {})) {
        if (key.startsWith(this.#prefix) && this.#isOld(key)) storage?.removeItem(key);
      }
    });
  }

  #isOld(key: string): boolean {
    const at = attempt(() => (JSON.parse(storageItem(this.#storage, key)) as Entry).at) ?? 0;
    return at < Date.now() - maxAgeMs;
  }

  #read(name: string | undefined): Entry | undefined {
    if (name === undefined) return undefined;

    return (
      attempt(() => JSON.parse(storageItem(this.#storage, this.#prefix + name)) as Entry) ??
      undefined
    );
  }

  #write(name: string | undefined, entry: Entry): void {
    if (name === undefined) return;

    attempt(() => this.#storage?.setItem(this.#prefix + name, JSON.stringify(entry)));
  }
}

/** The name of the entry of a logout. */
function endOf(session: string): string {
  return `${session} ended`;
}

function storageItem(storage: Storage | undefined, key: string): string {
  return storage?.getItem(key) ?? 'null';
}
