import type { Rate, RateLimitResult } from './sliding-window.ts';

/** Windows outside of this process, which several processes share. */
export interface SharedWindows {
  /**
   * Counts calls, as many as the rate allows.
   * @param calls 1 if undefined
   * @returns the state of the window before the first of them
   * @throws when they were not counted in time, for any reason
   */
  hit(key: string, rate: Rate, calls?: number): Promise<RateLimitResult>;
  /**
   * Returns the state of a window, without counting a call.
   * @throws as `hit`
   */
  peek(key: string, rate: Rate): Promise<RateLimitResult>;
  /**
   * Connects. Resolves when the connection is open, when the first attempt has failed, or after
   * a second.
   */
  started(): Promise<void>;
  /**
   * Replaces an open connection, because the address may lead elsewhere by now.
   * @param cause the error of the open connection
   */
  reconnect(cause: unknown): void;
  close(): void;
}
