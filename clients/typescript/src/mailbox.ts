import { unlessAborted } from './unless-aborted.ts';

/**
 * Messages that wait for a reader. One that does not take them in time loses them, and is told
 * so by undefined.
 */
export class Mailbox<Message> {
  readonly #max: number;
  #messages: Message[] = [];
  #hasLost = false;
  #failure: { readonly error: unknown } | undefined;
  #onMessage: (() => void) | undefined;

  /** @param max number of messages that wait */
  constructor(max: number) {
    this.#max = max;
  }

  put(message: Message): void {
    if (this.#messages.length < this.#max) this.#messages.push(message);
    else this.lose();
    this.#onMessage?.();
  }

  /** Lets the reader know that it may have missed a message. */
  lose(): void {
    this.clear();
    this.#hasLost = true;
    this.#onMessage?.();
  }

  /** Lets the reader throw. */
  fail(error: unknown): void {
    this.#failure = { error };
    this.#onMessage?.();
  }

  clear(): void {
    this.#messages = [];
    this.#hasLost = false;
  }

  /**
   * Waits for the next message.
   * @returns undefined after messages were lost
   */
  async take(signal: AbortSignal | undefined): Promise<Message | undefined> {
    for (;;) {
      if (this.#failure) throw this.#failure.error;
      if (this.#hasLost) {
        this.clear();
        return undefined;
      }

      const message = this.#messages.shift();
      if (message) return message;

      const arrival = new Promise<void>(resolve => {
        this.#onMessage = resolve;
      });
      await unlessAborted(arrival, signal);
    }
  }
}
