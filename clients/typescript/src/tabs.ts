import type { Tokens } from './session.ts';

/** A part of `localStorage` or `sessionStorage`. */
export type TokenStorage = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

/** What one tab sends to the others: the tokens that replace those with this refresh token. */
interface Replacement {
  readonly refreshToken: string;
  readonly tokens: Tokens | undefined;
  /** True for another session. Only tabs with the same storage follow: the former session goes on in the others. */
  readonly isLogin: boolean;
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
  /** Stores tokens, and sends them to the other tabs that have the former ones. */
  replace(former: Tokens | undefined, tokens: Tokens | undefined, isLogin: boolean): void;
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
  const locks = isBrowser ? globalThis.navigator?.locks : undefined; // only in secure contexts
  const stored = (): Tokens | undefined => JSON.parse(storage?.getItem(name) ?? 'null') ?? undefined;
  const store = (tokens: Tokens | undefined): void => {
    if (tokens) storage?.setItem(name, JSON.stringify(tokens));
    else storage?.removeItem(name);
  };
  const receive = (replacement: Replacement): void => {
    const { refreshToken, tokens, isLogin } = replacement;
    const own = stored()?.refreshToken;
    if (isLogin && own !== tokens?.refreshToken) return;
    if (own === refreshToken) store(tokens); // a storage of this tab alone, such as sessionStorage
    onReplaced(replacement);
  };
  if (channel) channel.onmessage = ({ data }) => receive(data as Replacement);
  return {
    stored,
    replace: (former, tokens, isLogin) => {
      store(tokens);
      if (former) channel?.postMessage({ refreshToken: former.refreshToken, tokens, isLogin } satisfies Replacement);
    },
    alone: async task => (locks ? await locks.request(name, task) : task()),
  };
}
