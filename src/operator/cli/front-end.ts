import type { Plan } from '../command/operation.ts';
import type { Output, Progress } from '../command/operation-context.ts';

/** Progress that says whether it counts, which decides what a Ctrl-C does, and that can be removed. */
export interface CommandProgress extends Progress {
  /** True once it counts. */
  readonly counts: boolean;
  end(): void;
}

/** Where a command shows what it does, and asks. */
export interface FrontEnd {
  readonly progress: CommandProgress;
  /** @param isRepeated true if the command returns several results */
  output(isRepeated: boolean): Output;
  /** As `Context.agree`. */
  agree(question: string): Promise<boolean | undefined>;
  /** Has a plan confirmed, if it wants that. @throws {OperatorError} when it is not */
  confirm(plan: Plan, yes: boolean): Promise<void>;
  showPlan(plan: Plan, output: Output): void;
  /** Called when an operation that reads has found something to correct, such as `doctor`. */
  found(): void;
}
