import type { Grant } from './grants.ts';

/** Longer than a process may open connections after its last exchange (`freshMs`). */
const silenceMs = 3_000;
const suspectMs = 1_500;
/** A longer gap between two exchanges of the observer does not count: the control database may have been away. */
const maxGapMs = 1_500;

interface Observation {
  readonly heartbeat: number;
  readonly silentMs: number;
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
        const silentMs = last?.heartbeat === heartbeat ? last.silentMs + counted : 0;
        return [holder, { heartbeat, silentMs }];
      }),
    );
    this.#seenAt = now;
  }

  isSilent({ holder }: Grant): boolean {
    return this.#silentMs(holder) >= silenceMs;
  }

  /** True when a closer look is worth its cost: the process missed an exchange. */
  isSuspect({ holder }: Grant): boolean {
    return this.#silentMs(holder) >= suspectMs;
  }

  #silentMs(holder: string): number {
    return this.#observations.get(holder)?.silentMs ?? 0;
  }
}
