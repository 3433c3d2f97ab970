import { OperatorError } from '../../../lib/log/operator-error.ts';

export interface TargetLimits {
  /**
   * The time without a byte in either direction after which a call fails, while the target has
   * acknowledged all that was sent.
   */
  readonly maxSilenceMs: number;
  /**
   * The pace at which sent bytes lengthen that time until they are acknowledged: a proxy may
   * take them at once, and answer when it has passed them on.
   */
  readonly bytesPerSecond: number;
}

/**
 * A run that sends nothing large ends less than 60 s after a target falls silent: the second
 * silent call begins at most 18 s after the silence does and ends 18 s later, and a call that
 * begins just before that end is silent as long again.
 */
export const targetLimits: TargetLimits = { maxSilenceMs: 18_000, bytesPerSecond: 64_000 };

/**
 * The number of successive silent calls after which the target is given up. A single one can be
 * a broken connection.
 */
const maxSilentCalls = 2;

/**
 * Ends the calls of a target that does not respond. After `maxSilentCalls` in a row all later
 * calls fail at once, so that a run does not wait for each of its archives.
 */
export class TargetCalls {
  readonly #description: string;
  readonly #remedy: string;
  readonly #limits: TargetLimits;
  #silentCalls = 0;
  #unacknowledgedBytes = 0;

  /** @param remedy the end of the messages, as a command */
  constructor(description: string, remedy: string, limits: TargetLimits) {
    this.#description = description;
    this.#remedy = remedy;
    this.#limits = limits;
  }

  /**
   * The time for which a call may be silent now. The bytes of all calls count, because they
   * share a line.
   */
  get maxSilenceMs(): number {
    const { maxSilenceMs, bytesPerSecond } = this.#limits;

    return maxSilenceMs + (1_000 * this.#unacknowledgedBytes) / bytesPerSecond;
  }

  /**
   * @param call for messages: `read writer.json`
   * @throws {OperatorError} when the target is given up
   */
  begin(call: string): void {
    if (this.#silentCalls < maxSilentCalls) return;

    throw new OperatorError(
      `${this.#description} does not respond, so this was not tried: ${call}. ${this.#remedy}, then try again`,
    );
  }

  /** Records a complete answer, also if it is an error. */
  answered(): void {
    this.#silentCalls = 0;
  }

  /**
   * Counts the bytes that a call sends as not acknowledged.
   * @returns a function for the moment when they are acknowledged, or the call has failed
   */
  send(bytes: number): () => void {
    this.#unacknowledgedBytes += bytes;

    return () => {
      this.#unacknowledgedBytes -= bytes;
    };
  }

  /** Records a call that was silent for this time, and returns its error. */
  silent(call: string, ms: number): OperatorError {
    this.#silentCalls++;
    const seconds = Math.round(ms / 1_000);

    return new OperatorError(
      `${this.#description} was silent for ${seconds} s: ${call}. ${this.#remedy}, then try again`,
    );
  }

  /**
   * Waits for the result of one step of a call, at most as long as a call may be silent.
   * @throws {OperatorError} when it takes longer; the step itself cannot be ended, so its
   *   result is dropped
   */
  async wait<T>(call: string, step: () => Promise<T>): Promise<T> {
    this.begin(call);
    const silence = Promise.withResolvers<never>();
    const { maxSilenceMs } = this;
    const timer = setTimeout(() => silence.reject(this.silent(call, maxSilenceMs)), maxSilenceMs);

    return Promise.race([step(), silence.promise]).finally(() => clearTimeout(timer));
  }
}
