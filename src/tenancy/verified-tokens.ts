import { LRUCache } from 'lru-cache';
import type { Directory } from '../control/directory.ts';
import type { CallerRecords } from '../control/records.ts';
import type { Caller } from './request-context.ts';

/** What was proved of an access token, and the records of the control database by which it was. */
export interface VerifiedToken extends CallerRecords {
  readonly caller: Caller;
  /** Seconds since 1970, as the token says; whoever uses this compares it with the clock. */
  readonly expiresAt: number;
}

const maxTokens = 10_000; // at most 1.5 KB of text each, and as much beside it

/**
 * Access tokens whose signature and claims need not be looked at again, by their whole text; the least recently used are
 * forgotten. A token that was not good is never kept.
 *
 * Nothing tells this of a change. What was proved counts only while the records by which it was are the very ones that
 * the directory would give at this moment: a session that ended, a key that was disabled, a role that changed or a change
 * feed that is down is a record that is not the one of then, and the token is verified anew.
 */
export class VerifiedTokens {
  readonly #directory: Pick<Directory, 'freshnessCheck'>;
  readonly #kept = new LRUCache<string, { verified: VerifiedToken; isCurrent: () => boolean }>({ max: maxTokens });

  constructor(directory: Pick<Directory, 'freshnessCheck'>) {
    this.#directory = directory;
  }

  get size(): number {
    return this.#kept.size;
  }

  find(token: string): VerifiedToken | undefined {
    const kept = this.#kept.get(token);
    if (!kept) return undefined;
    if (kept.isCurrent()) return kept.verified;
    this.#kept.delete(token);
    return undefined;
  }

  add(token: string, verified: VerifiedToken): void {
    const isCurrent = this.#directory.freshnessCheck(verified);
    if (isCurrent) this.#kept.set(token, { verified, isCurrent });
  }
}
