import {
  type Confirmation,
  type Context,
  type Definition,
  defineOperation,
  type NoFields,
  type Operation,
} from './operation.ts';
import type { Fields, Values } from './operation-fields.ts';

/**
 * A change that was made; in a dry run, one that was checked as far as possible without making
 * it.
 */
interface Change {
  /** The document of the result. An array is that of the plan, too. */
  readonly document: object;
  /** Fields of the document of the plan, beside `document` and the state `planned`. */
  readonly facts?: object;
  /** A sentence about the planned change. */
  readonly plan: string;
  /** A sentence about the change that was made. */
  readonly done: string;
  /** The confirmation of the plan; see `Plan.confirm`. */
  readonly confirm?: Confirmation | undefined;
  /** The part of the plan that must still hold; see `Plan.steady`. */
  readonly steady?: string;
}

interface ChangeDefinition<F extends Fields> extends Omit<Definition<F>, 'plan' | 'run'> {
  /** @param isDryRun true to change nothing, and to fail where the change would */
  change(values: Values<F>, context: Context, isDryRun: boolean): Promise<Change>;
}

/**
 * Returns an operation that makes one change and returns its result: the plan is the same
 * change as a dry run.
 */
export function defineChange<const F extends Fields = NoFields>({
  change,
  ...definition
}: ChangeDefinition<F>): Operation {
  return defineOperation<F>({
    ...definition,
    async plan(values, context) {
      const {
        document,
        facts,
        plan,
        done: _,
        ...confirmation
      } = await change(values, context, true);
      const planned = Array.isArray(document)
        ? document
        : { ...document, ...facts, state: 'planned' };
      return { document: planned, text: () => plan, ...confirmation };
    },
    async run(values, context) {
      const { document, done } = await change(values, context, false);
      context.output.result(document, () => done);
    },
  });
}
