import { OperatorError } from '../../../lib/log/operator-error.ts';

export interface TargetLimits {
  /** The time without a byte in either direction after which a call fails. */
  readonly maxSilenceMs: number;
}

/**
 * A run ends less than 60 s after a target falls silent: the second silent call begins at most
 * 18 s after the silence does and ends 18 s later, and a call that begins just before that end
 * is silent as long again.
 */
export const targetLimits: TargetLimits = { maxSilenceMs: 18_000 };

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
  readonly #maxSilenceMs: number;
  #silentCalls = 0;

  /** @param remedy the end of the messages, as a command */
  constructor(description: string, remedy: string, maxSilenceMs: number) {
    this.#description = description;
    this.#remedy = remedy;
    this.#maxSilenceMs = maxSilenceMs;
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

  /** Records a call that was silent for too long, and returns its error. */
  silent(call: string): OperatorError {
    this.#silentCalls++;
    const seconds = this.#maxSilenceMs / 1_000;

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
    const timer = setTimeout(() => silence.reject(this.silent(call)), this.#maxSilenceMs);

    return Promise.race([step(), silence.promise]).finally(() => clearTimeout(timer));
  }
}
