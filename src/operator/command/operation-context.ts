import type { ControlStatements, Installation, InstallationAccess } from '../../installation.ts';
import type { Trace } from '../../tracing/trace.ts';

/** What an operation can have opened for it, by what it needs. */
export interface Installations {
  /** The control database at head with its entity manager, within the connection budget. */
  installation: Installation;
  /**
   * One connection at a time to the control database at head, in the room that the connection budget leaves for that: it
   * starts sooner, and works while the budget is used up. It is closed while no statement runs.
   */
  statements: InstallationAccess & ControlStatements;
  /** The control database may be missing, or at any version. */
  unchecked: Installation;
  /** Nothing is opened. */
  nothing: undefined;
}

export type Access = keyof Installations;

/** How a list appears as text. */
interface ListText<Item> {
  /** The columns of an item. */
  readonly row: (item: Item) => object;
  /** Further columns, where there is room for all. */
  readonly wide?: (item: Item) => object;
  /** What other operations call an item. */
  readonly name: (item: Item) => string | number;
  /** The text without any item. */
  readonly empty: string;
}

/** Takes what an operation returns: a document for programs, or text for people. */
export interface Output {
  /** True where documents are taken, and no text. */
  readonly wantsDocuments: boolean;
  /** Takes the result. @param url what `-o url` prints, of an operation that makes a URL */
  result(document: unknown, text: () => string, url?: string): void;
  /** Takes one of several results as soon as it is known. */
  part(document: unknown, text: () => string): void;
  /** Takes text that no document is the counterpart of. */
  text(text: () => string): void;
  /** Takes the items of a list. @param isWide true to show all columns */
  list<Item extends object>(items: readonly Item[], text: ListText<Item>, isWide?: boolean): void;
  warn(message: string): void;
}

/** Takes how far an operation is. */
export interface Progress {
  /** True where somebody sees it: what it says need not be said again. */
  readonly isVisible: boolean;
  /** Begins a step. */
  step(text: string): void;
  /** Begins to count. */
  start(total: number): void;
  /** Counts one more. */
  advance(hasFailed: boolean): void;
}

/** What an operation runs in: on a terminal, in a script, or in a service. */
export interface Context<A extends Access = Access> {
  readonly installation: Installations[A];
  readonly output: Output;
  readonly progress: Progress;
  /** Aborts when the operation is to end early: see `Operation.interrupt`. */
  readonly signal: AbortSignal;
  /** The span of the operation, if it is traced. */
  readonly trace?: Trace | undefined;
  /** Asks a question that yes or no is the answer to. @returns undefined where nobody can be asked */
  agree(question: string): Promise<boolean | undefined>;
}
