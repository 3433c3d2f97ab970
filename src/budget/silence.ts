import type { Grant } from './grants.ts';

/** Longer than a process may open connections after its last exchange (`freshMs`). */
const silenceMs = 3_000;
const suspectMs = 1_500;
/**
 * How long a process must be silent before its connections may be ended, which breaks its requests. Those of a killed
 * process are gone before.
 */
const endMs = 5_000;
/** A longer gap between two exchanges of the observer does not count: the control database may have been away. */
const maxGapMs = 1_500;

interface Observation {
  readonly heartbeat: number;
  readonly silentMs: number;
  /** True once the process was found without a connection after it had become silent. */
  readonly isGone: boolean;
}

/**
 * How long the other processes have been silent, measured by the exchanges of this process only. The time in which it
 * had no exchange either, because the control database was away or this process was stopped, counts against nobody.
 */
export class Silence {
  #observations = new Map<string, Observation>();
  #seenAt = Number.NEGATIVE_INFINITY;

  /**
   * Records the grants that the control database returned.
   * @param sentAt when they were requested
   * @param now when they arrived: they are older than this, and newer than `sentAt`
   */
  observe(grants: readonly Grant[], sentAt: number, now: number): void {
    const gap = sentAt - this.#seenAt;
    const counted = gap > 0 && gap <= maxGapMs ? gap : 0;
    this.#observations = new Map(
      grants.map(({ holder, heartbeat }) => {
        const last = this.#observations.get(holder);
        if (last?.heartbeat !== heartbeat) return [holder, { heartbeat, silentMs: 0, isGone: false }];
        return [holder, { ...last, silentMs: last.silentMs + counted }];
      }),
    );
    this.#seenAt = now;
  }

  /** Records that the server showed no connection of a silent process. */
  observeGone({ holder }: Grant): void {
    const last = this.#observations.get(holder);
    if (last) this.#observations.set(holder, { ...last, isGone: true });
  }

  isSilent({ holder }: Grant): boolean {
    return this.#silentMs(holder) >= silenceMs;
  }

  /** True when the process is silent, and was found without a connection since it became so. */
  isGone(grant: Grant): boolean {
    return this.isSilent(grant) && (this.#observations.get(grant.holder)?.isGone ?? false);
  }

  /** True when a closer look is worth its cost: the process missed an exchange. */
  isSuspect({ holder }: Grant): boolean {
    return this.#silentMs(holder) >= suspectMs;
  }

  /** True when the connections of the process may be ended. */
  mayEnd({ holder }: Grant): boolean {
    return this.#silentMs(holder) >= endMs;
  }

  #silentMs(holder: string): number {
    return this.#observations.get(holder)?.silentMs ?? 0;
  }
}
