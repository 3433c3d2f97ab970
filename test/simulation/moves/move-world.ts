import type { Random } from '../random.ts';
import type { Scheduler } from '../scheduler.ts';
import { Violation } from '../violation.ts';
import type { ServingProcess } from './serving-process.ts';
import type { SimulatedControl } from './simulated-moves.ts';

/** What the simulated runs and processes share. */
export interface MoveWorld {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly control: SimulatedControl;
  readonly processes: readonly ServingProcess[];
  /** Writes that a client knows to be done. */
  readonly acknowledged: Set<number>;
  /** Requests that failed. */
  failed: number;
  /** True while nothing goes wrong. */
  isCalm: boolean;
  epochs: number;
  writes: number;
  trace(line: () => string): void;
  /** @throws {Violation} */
  fail(message: string): never;
}

export function violation(message: string): never {
  throw new Violation(message);
}
