/** How long after the start of a confirmed exchange connections may be opened. Shorter than `silenceMs`. */
const freshMs = 2_000;
const heartbeatMs = 1_000;
const minUrgentMs = 100;
const maxUrgentMs = 400;
const retryMs = 250;

/** When the exchanges of a process begin. Times are those of one monotonic clock, in ms. */
export class ExchangeTimes {
  /** When the exchange under way began; undefined when none is. */
  #sentAt: number | undefined;
  /** When the last confirmed exchange began. */
  #confirmedAt = Number.NEGATIVE_INFINITY;
  #nextAt = Number.NEGATIVE_INFINITY;
  #urgentAt = Number.NEGATIVE_INFINITY;
  #urgentMs = minUrgentMs;

  /** True while the last confirmed exchange is recent enough to open a connection. */
  isFresh(now: number): boolean {
    return now - this.#confirmedAt < freshMs;
  }

  /** True when an exchange should begin. */
  isDue(now: number, isUrgent: boolean): boolean {
    if (this.#sentAt !== undefined) return false;
    return now >= this.#nextAt || (isUrgent && now >= this.#urgentAt);
  }

  begin(now: number): void {
    this.#sentAt = now;
  }

  /** @param hasGrown urgent exchanges that achieve nothing become rarer */
  confirm(now: number, hasGrown: boolean): void {
    this.#urgentMs = hasGrown ? minUrgentMs : Math.min(maxUrgentMs, 2 * this.#urgentMs);
    this.#confirmedAt = this.#sentAt ?? Number.NEGATIVE_INFINITY;
    this.#end(now, (this.#sentAt ?? now) + heartbeatMs);
  }

  fail(now: number): void {
    this.#end(now, now + retryMs);
  }

  /** Lets other processes go first, which have changed the grants again and again in between. */
  giveWay(now: number): void {
    this.#end(now, now + minUrgentMs);
  }

  #end(now: number, nextAt: number): void {
    this.#nextAt = nextAt;
    this.#urgentAt = now + this.#urgentMs;
    this.#sentAt = undefined;
  }
}
