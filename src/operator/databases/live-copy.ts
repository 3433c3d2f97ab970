import type pg from 'pg';
import { OperatorError } from '../../log/operator-error.ts';
import { awaitShortTransactions } from '../schema/tenant-sessions.ts';
import type { CopiedTables } from './copied-tables.ts';
import { catchUp, copyAll, copyMissing, rowsAhead } from './copy-tables.ts';
import type { RunEpoch } from './database-stamp.ts';
import type { RunFacts } from './database-store.ts';
import { describe, findMissing } from './missing-data.ts';

/** What the fence takes beside the copy of the changed tables, in ms. */
export const fenceMs = 150;

/** The two databases of a copy, and who copies. */
interface LiveCopyOptions {
  /** Both connected, with `canonicalTextSettings`. */
  readonly source: pg.Client;
  readonly target: pg.Client;
  readonly run: RunEpoch;
  /** The login role of the tenant in the source. */
  readonly role: string;
  /** Maximum estimated wait of requests, in ms. */
  readonly maxPauseMs: number;
}

/** Copies the data of a tenant that is served to another database: all of it, what is new, and the rest behind a fence. */
export class LiveCopy {
  readonly #options: LiveCopyOptions;
  #copied: CopiedTables | undefined;

  constructor(options: LiveCopyOptions) {
    this.#options = options;
  }

  /** Copies everything once, which shows how long the tables that change will take behind the fence. */
  async copyAll(): Promise<RunFacts> {
    const startedAt = performance.now();
    const copied = await copyAll(this.#options);
    this.#copied = copied;
    const { rows: size } = await this.#options.source.query<{ bytes: string }>(
      'select pg_database_size(current_database()) as bytes',
    );
    const rows = copied.rows + rowsAhead(copied.prefixes);
    return { bytes: Number(size[0]?.bytes), rows, copyMs: performance.now() - startedAt };
  }

  /** Copies what was appended meanwhile. @throws {OperatorError} when requests would wait for too long */
  async copyAhead(): Promise<void> {
    const { source, role, maxPauseMs } = this.#options;
    await awaitShortTransactions(source, role);
    this.#copied = await catchUp(this.#options, this.#present());
    const missing = await findMissing(source, this.#copied, role);
    const pauseMs = fenceMs + missing.estimatedMs;
    if (pauseMs > maxPauseMs)
      throw new OperatorError(
        `Requests of the tenant would wait for about ${(pauseMs / 1_000).toFixed(1)} s, because ${describe(missing)}; ` +
          `at most ${maxPauseMs / 1_000} s are allowed. Move it at a quieter time, or accept a longer wait: ` +
          `--pause ${Math.ceil((1.5 * pauseMs) / 1_000)}`,
      );
  }

  /** Copies the rest, and compares both databases. The source is closed, and stays locked until its transaction ends. */
  async copyChanges(): Promise<void> {
    const { role, maxPauseMs } = this.#options;
    await copyMissing(this.#options, this.#present(), { role, maxMs: maxPauseMs });
  }

  #present(): CopiedTables {
    if (!this.#copied) throw new Error('nothing has been copied');
    return this.#copied;
  }
}
