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
      /** The number of those that are `badly` done: have `failed`. */
      readonly bad: number;
      readonly badly: string;
    }
  | { readonly kind: 'text'; readonly text: string }
  /** The command only reads, and returned false: what it looked at is not as it should be. */
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
      /** As `Plan.steady`. */
      readonly steady: string;
    }
  /**
   * The command has made its plan again. Its answer is what was typed, or false when that is
   * not the plan that was shown.
   */
  | { readonly kind: 'confirm'; readonly steady: string };
