import type { Tokens } from './session.ts';

/** A part of `localStorage` or `sessionStorage`. */
export type TokenStorage = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

/** What one tab tells the others: the tokens that replace those with this refresh token. */
interface Replacement {
  readonly refreshToken: string;
  readonly tokens: Tokens | undefined;
}

interface TabsOptions {
  /** What the tabs that share a session have in common. */
  readonly name: string;
  readonly storage: TokenStorage | undefined;
  /** Receives what another tab has replaced. */
  readonly onReplaced: (replacement: Replacement) => void;
}

/** The other tabs of a browser, which may have the same tokens. */
export interface Tabs {
  /** Returns the stored tokens; undefined when there are none, or nothing is stored. */
  stored(): Tokens | undefined;
  /** Stores tokens, and tells the other tabs that have the former ones. */
  replace(former: Tokens | undefined, tokens: Tokens | undefined): void;
  /** Runs a task while no other tab runs one. */
  alone<T>(task: () => Promise<T>): Promise<T>;
}

/**
 * Connects the tabs of a browser by Web Locks and a BroadcastChannel. Elsewhere there is one client of a session, and
 * each part that is missing does nothing.
 */
export function connectTabs({ name, storage, onReplaced }: TabsOptions): Tabs {
  const isBrowser = 'location' in globalThis;
  const channel = isBrowser && 'BroadcastChannel' in globalThis ? new BroadcastChannel(name) : undefined;
  if (channel) channel.onmessage = ({ data }) => onReplaced(data as Replacement);
  const locks = isBrowser ? globalThis.navigator?.locks : undefined; // only in secure contexts
  return {
    stored: () => JSON.parse(storage?.getItem(name) ?? 'null') ?? undefined,
    replace: (former, tokens) => {
      if (tokens) storage?.setItem(name, JSON.stringify(tokens));
      else storage?.removeItem(name);
      if (former) channel?.postMessage({ refreshToken: former.refreshToken, tokens } satisfies Replacement);
    },
    alone: async task => (locks ? await locks.request(name, task) : task()),
  };
}
