import { attempt } from './token-store.ts';
import type { SessionTokens } from './tokens.ts';

/** A message of one tab to the others. */
export type TabMessage =
  /** The tokens that replace former ones; undefined: the session has ended. */
  | {
      readonly kind: 'replaced';
      readonly former: SessionTokens;
      readonly tokens: SessionTokens | undefined;
    }
  /** Asks for newer tokens of the same session. */
  | { readonly kind: 'ask'; readonly tokens: SessionTokens };

/**
 * A tab that holds the lock longer is frozen, or its network hangs. A second refresh beside the
 * first one is harmless for a minute, so others go on.
 */
const maxLockWaitMs = 10_000;

/** What the global object of a page has, and that of Node has not. */
interface Page {
  addEventListener(type: 'storage', listener: (event: { key: string | null }) => void): void;
}

interface TabEvents {
  readonly onMessage: (message: TabMessage) => void;
  /** Called when another tab has changed what this tab reads in a storage. */
  readonly onStored: () => void;
}

/**
 * The other tabs of a browser, which may have the same tokens, by a BroadcastChannel, the
 * events of `localStorage` and Web Locks. A browser passes each of them on by itself: after a
 * while, and in any order. Elsewhere there is one client of a session. A part that is missing
 * or blocked does nothing.
 */
export class Tabs {
  readonly #name: string;
  readonly #channel: InstanceType<typeof BroadcastChannel> | undefined;
  readonly #locks: typeof globalThis.navigator.locks | undefined;

  /** @param name what the tabs that share a session have in common */
  constructor(name: string, { onMessage, onStored }: TabEvents) {
    this.#name = name;
    this.#channel = isBrowser ? attempt(() => new BroadcastChannel(name)) : undefined;
    this.#locks = isBrowser ? globalThis.navigator?.locks : undefined; // only in secure contexts
    if (this.#channel) {
      this.#channel.onmessage = ({ data }: { data: unknown }) => onMessage(data as TabMessage);
    }
    if (isBrowser) {
      (globalThis as unknown as Page).addEventListener('storage', ({ key }) => {
        if (key?.startsWith(name)) onStored();
      });
    }
  }

  /** True if another tab could respond. */
  get areReachable(): boolean {
    return this.#channel !== undefined;
  }

  send(message: TabMessage): void {
    this.#channel?.postMessage(message);
  }

  /** Runs a task while no other tab runs one, or when none has ended for ten seconds. */
  async alone<T>(task: () => Promise<T>): Promise<T> {
    if (!this.#locks) return task();

    let hasBegun = false;
    const begin = (): Promise<T> => {
      hasBegun = true;
      return task();
    };

    try {
      return await this.#locks.request(
        this.#name,
        { signal: AbortSignal.timeout(maxLockWaitMs) },
        begin,
      );
    } catch (error) {
      if (hasBegun) throw error;
      return task(); // no lock in time, or none in this document
    }
  }
}

/** True in a page or a worker of a browser. */
export const isBrowser = 'location' in globalThis;
