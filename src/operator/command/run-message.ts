import type { Confirmation } from './operation.ts';

/** What a command that the console runs says about itself, over the channel to its parent process. */
export type RunMessage =
  /** A step begins. */
  | { readonly kind: 'step'; readonly text: string }
  | { readonly kind: 'count'; readonly total: number; readonly done: number; readonly failed: number }
  | { readonly kind: 'text'; readonly text: string }
  /** A list: its columns, and the text of each cell. */
  | { readonly kind: 'list'; readonly columns: readonly string[]; readonly rows: readonly (readonly string[])[] }
  | {
      readonly kind: 'plan';
      readonly text: string;
      readonly hasFailed: boolean;
      readonly confirm: Confirmation | null;
    }
  /** The command waits for the name that confirms it: a string as answer. */
  | { readonly kind: 'confirm'; readonly confirm: Confirmation };
