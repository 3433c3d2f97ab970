import type { Logger } from 'pino';
import { describeError } from '../log/describe-error.ts';
import type { Statements } from '../postgres/statements.ts';
import type { ChangeFeed } from './change-feed.ts';
import { changeTopics } from './change-topics.ts';
import { keyInForce } from './master-key-canary.ts';
import type { SecretBox } from './secret-box.ts';

interface MasterKeyWatchOptions {
  control: Statements;
  secrets: Pick<SecretBox, 'current' | 'previous'>;
  feed: Pick<ChangeFeed, 'subscribe'>;
  log: Pick<Logger, 'error' | 'warn'>;
}

const retryMs = 1_000;

/**
 * Knows whether a process has the key that seals the secrets of the control database: `control reseal` may have made
 * another one the only key. Without it, the process opens no tenant that it does not have in memory, and nobody logs
 * in. Checks when the change feed announces another key, and after each time that the feed was down.
 */
export class MasterKeyWatch {
  readonly #options: MasterKeyWatchOptions;
  #isKnown = true;
  /** The number of the newest check: earlier ones have no effect when they end later. */
  #checks = 0;
  #retry: NodeJS.Timeout | undefined;
  #isStopped = false;

  constructor(options: MasterKeyWatchOptions) {
    this.#options = options;
    options.feed.subscribe(changeTopics.masterKey, () => void this.check());
  }

  /** False while neither `MASTER_KEY` nor `MASTER_KEY_PREVIOUS` of this process is the key of the secrets. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  /**
   * Reads the control database. Never rejects: what cannot be read stays as it was, until it is read a second later.
   */
  async check(): Promise<void> {
    if (this.#isStopped) return;
    const number = ++this.#checks;
    clearTimeout(this.#retry);
    const { control, secrets, log } = this.#options;
    try {
      const isKnown = (await keyInForce(control, secrets)) !== undefined;
      if (number !== this.#checks) return;
      if (this.#isKnown && !isKnown)
        log.error(
          { event: 'master_key_unknown' },
          'the secrets were sealed under a key that is neither MASTER_KEY nor MASTER_KEY_PREVIOUS of this process: ' +
            'set MASTER_KEY to the new key, and restart it',
        );
      this.#isKnown = isKnown;
    } catch (error) {
      if (number !== this.#checks || this.#isStopped) return;
      log.warn({ err: describeError(error) }, 'the master key could not be checked');
      this.#retry = setTimeout(() => void this.check(), retryMs).unref();
    }
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#retry);
  }
}
