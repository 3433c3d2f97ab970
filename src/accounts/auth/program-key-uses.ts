import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import { type ControlDatabase, queryControl } from '../../control/database.ts';
import { describeError } from '../../lib/log/describe-error.ts';
import { maxEntries } from '../../lib/runtime/lru-bounds.ts';
import { RepeatedWrite } from '../../lib/runtime/repeated-write.ts';

const writeIntervalMs = 2_000;
const hourMs = 3_600_000;
/** The maximum number of keys whose last hour is remembered. */
const maxKeys = 10_000;

const storeUses = `
  update program_keys set last_used_at = date_trunc('hour', now(), 'UTC')
   where id = any ($1::uuid[]) and last_used_at is distinct from date_trunc('hour', now(), 'UTC')`;

interface ProgramKeyUsesOptions {
  control: ControlDatabase;
  log: Logger;
  /** The wall clock, in ms since 1970. */
  now: () => number;
}

/**
 * Stores the hour in which each key of a program was last used. A key costs one row an hour and
 * process, however many requests it sends, and no request waits for it.
 */
export class ProgramKeyUses {
  readonly #options: ProgramKeyUsesOptions;
  /** The hour in which each key was last noted, in hours since 1970. */
  readonly #hours = new LRUCache<string, number>(maxEntries(maxKeys));
  readonly #unwritten = new Set<string>();
  readonly #writes: RepeatedWrite;

  constructor(options: ProgramKeyUsesOptions) {
    this.#options = options;
    this.#writes = new RepeatedWrite(() => this.#write(), writeIntervalMs);
  }

  /** @param keyId the id of a key that a request has been accepted with */
  note(keyId: string): void {
    const hour = Math.floor(this.#options.now() / hourMs);
    if (this.#hours.get(keyId) === hour) return;

    this.#hours.set(keyId, hour);
    this.#unwritten.add(keyId);
  }

  /** Stores the remaining uses, and ends. */
  async stop(): Promise<void> {
    await this.#writes.stop();
  }

  async #write(): Promise<void> {
    const ids = [...this.#unwritten];
    if (ids.length === 0) return;

    this.#unwritten.clear();
    try {
      await queryControl(this.#options.control, 'program_key_uses', storeUses, [ids]);
    } catch (error) {
      for (const id of ids) this.#unwritten.add(id);
      this.#options.log.warn(
        { event: 'key_uses_not_stored', err: describeError(error) },
        'the uses of keys of programs could not be stored: they are stored later',
      );
    }
  }
}
