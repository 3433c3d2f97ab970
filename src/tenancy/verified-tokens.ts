import { LRUCache } from 'lru-cache';
import type { Directory } from '../control/directory.ts';
import type { CallerRecords } from '../control/records.ts';
import { maxEntries } from '../lib/runtime/lru-bounds.ts';
import type { Caller } from './caller.ts';

/**
 * The caller of an access token, or of the key of a program, and the records of the control
 * database that prove it.
 */
export interface VerifiedToken extends CallerRecords {
  readonly caller: Caller;
  /**
   * The time from which the token is refused, in seconds since 1970. `VerifiedTokens` does not
   * check it; the caller of `find` does.
   */
  readonly endsAt: number;
}

/** A token has at most 1.5 KB of text, and its entry needs as much again. */
const maxTokens = 10_000;
/** Characters of the signature (HS512), with which a token ends. */
const signatureLength = 86;

interface CachedToken {
  readonly token: string;
  readonly verified: VerifiedToken;
  readonly isCurrent: () => boolean;
}

/**
 * Caches verified access tokens by their whole text, so that signature and claims are not
 * verified on every request; and the keys of programs, which are shorter than a signature. The
 * least recently used ones are evicted. A token that failed verification is never cached.
 *
 * An entry is found by the signature and counts only for the very text that was verified. The
 * hash of the whole text, which each request has in a string of its own, would take a thirtieth
 * of the time of a cached read.
 *
 * The cache receives no invalidations. Instead, an entry is valid only while each record that
 * proves it is the very object that the directory would return now. After a change (session
 * revoked, key disabled, role changed) the directory returns another object, and while the
 * change feed is down it returns none from memory: the token is then verified again.
 */
export class VerifiedTokens {
  readonly #directory: Pick<Directory, 'freshnessCheck'>;
  readonly #tokens: LRUCache<string, CachedToken>;

  constructor(directory: Pick<Directory, 'freshnessCheck'>, max = maxTokens) {
    this.#directory = directory;
    this.#tokens = new LRUCache(maxEntries(max));
  }

  get size(): number {
    return this.#tokens.size;
  }

  /**
   * Returns the verified token while its records are current. It may have expired meanwhile.
   */
  find(token: string): VerifiedToken | undefined {
    const signature = token.slice(-signatureLength);
    const entry = this.#tokens.get(signature);
    if (entry?.token !== token) return undefined;
    if (entry.isCurrent()) return entry.verified;
    this.#tokens.delete(signature);
    return undefined;
  }

  /** Caches a verified token, unless its records are no longer current. */
  add(token: string, verified: VerifiedToken): void {
    const isCurrent = this.#directory.freshnessCheck(verified);
    if (isCurrent) this.#tokens.set(token.slice(-signatureLength), { token, verified, isCurrent });
  }
}
