import type { Confirmation } from './operation.ts';

/**
 * A message of a command that the console runs, about itself, over the channel to its parent
 * process.
 */
export type RunMessage =
  /** A step begins. */
  | { readonly kind: 'step'; readonly text: string }
  | {
      readonly kind: 'count';
      readonly total: number;
      readonly done: number;
      /** The number of failed ones. */
      readonly bad: number;
      readonly badly: string;
    }
  | { readonly kind: 'text'; readonly text: string }
  /** The command only reads, and returned false: it has found a fault. */
  | { readonly kind: 'found' }
  /** A list: its columns, and the text of each cell. */
  | {
      readonly kind: 'list';
      readonly columns: readonly string[];
      readonly rows: readonly (readonly string[])[];
    }
  | {
      readonly kind: 'plan';
      readonly text: string;
      readonly hasFailed: boolean;
      readonly confirm: Confirmation | null;
      /** The part of the plan that must still hold; see `Plan.steady`. */
      readonly steady: string;
    }
  /**
   * The command has made its plan again. The answer is the typed text, or false when the plan
   * is not the one that was shown.
   */
  | { readonly kind: 'confirm'; readonly steady: string };
