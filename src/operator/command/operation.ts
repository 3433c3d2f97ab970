import type { Installation } from '../../control/installation.ts';
import type { Trace } from '../../lib/tracing/trace.ts';
import type { Fields, Values } from './operation-fields.ts';

/**
 * The effect of an operation: it reads, it makes changes, it locks out people or programs who
 * had access, or it destroys what cannot be had back easily.
 */
type Effect = 'reads' | 'changes' | 'locks out' | 'destroys';

/**
 * False when an operation has failed and has reported the reason; `again` when it is to be
 * repeated.
 */
// biome-ignore lint/suspicious/noConfusingVoidType: most operations return nothing
type RunResult = boolean | 'again' | void;

/** The plan of an operation: what it would do. */
export interface Plan {
  readonly document: unknown;
  readonly text: () => string;
  /** True for a document that is an array, and printed as JSON lines. */
  readonly isLines?: boolean;
  /** True if the operation would fail. */
  readonly hasFailed?: boolean;
  /** The confirmation that an operator gives before the operation runs. */
  readonly confirm?: Confirmation | undefined;
  /**
   * The part of the text that must still be true when the operator confirms the plan. By
   * default the whole text; a part, if clients change the rest at any moment, such as the
   * number of open sessions.
   */
  readonly steady?: string;
}

/** The confirmation of an operation: an operator types a name. */
export interface Confirmation {
  /** The text that the operator types. */
  readonly name: string;
  readonly kind?: 'slug' | 'name' | 'address';
  /** Completes a sentence that begins with the name: "will not be served". */
  readonly consequence: string;
}

/** The texts of an operation for the operators who run it. */
export interface Help {
  /** A line on the work of the operation. */
  readonly description: string;
  /**
   * Command lines as they follow the name of the program. Text that begins with `#` is a
   * comment of the shell.
   */
  readonly examples: readonly string[];
  /** Paragraphs that follow the options. */
  readonly more?: string;
  /** The meanings of the exit code, if they are more than done, failed and wrong usage. */
  readonly exitCodes?: string;
  /** The help of `--dry-run`, if the general sentence is not enough. */
  readonly dryRun?: string;
  /** The output of `--json`, if that is not one document. */
  readonly json?: string;
}

/** Facts that a front end must know of an operation before it runs it. Most have none. */
export interface Handling<F extends Fields = Fields> {
  /**
   * The demands of the operation on the control database. Default: one at the version of this
   * build. `unused`: the operation uses no installation. `made`: it makes the control database,
   * which may be missing or at any version. `rows`: it changes only rows of the control
   * database, so that the rights of its owner suffice.
   */
  readonly control?: 'unused' | 'made' | 'rows';
  /**
   * True if it can be the first command of an installation: it makes the folder of an embedded
   * PostgreSQL that is missing. So does one with the control `made`.
   */
  readonly beginsData?: boolean;
  /**
   * The result, if not one document or several: a `list`; a `url`, which `-o url` prints alone;
   * `text` without any document.
   */
  readonly result?: 'list' | 'url' | 'text';
  /**
   * True if a timer runs the operation. Of its runs, the log of operators keeps the last one of
   * each day and outcome.
   */
  readonly isRoutine?: boolean;
  /**
   * Returns whether an operator confirms an operation with these values, which needs no
   * confirmation otherwise.
   */
  readonly confirms?: (fields: Values<F>) => boolean;
  /** True if its run is traced, when the settings name a collector of OpenTelemetry. */
  readonly isTraced?: boolean;
  /**
   * `sometimes`: it can be repeated, to watch it. `always`: it is repeated until it does not
   * return `again`.
   */
  readonly repeats?: 'sometimes' | 'always';
  /** The way in which an operation that looks at `signal` ends early. */
  readonly interrupt?: {
    /** The work whose end the operation waits for: `the running migrations`. */
    readonly text: string;
    /** True if it can be ended at once as long as its progress does not count. */
    readonly isIdleBeforeCount?: boolean;
  };
  /**
   * Returns whether it opens archives, for which the host needs an identity. A console without
   * one shows the command to run on the recovery host.
   */
  readonly opensArchives?: (fields: Values<F>) => boolean;
}

/**
 * One thing that an operator can do. The command line makes a command of it, and the console a
 * form. An operation knows neither the terminal nor the arguments of the process, and imports
 * what it needs when it runs: a short command spends most of its time loading modules.
 */
export interface Operation<F extends Fields = Fields> {
  /** The words of the command, such as `user add`. */
  readonly name: string;
  readonly help: Help;
  /** The values that it takes: arguments and options of a command, inputs of a form. */
  readonly fields: F;
  readonly effect: Effect;
  readonly handling: Handling<F>;
  /**
   * Returns what `run` would do, and changes nothing. An operation that has to be confirmed has
   * one.
   */
  plan?(fields: Values<F>, context: Context): Promise<Plan>;
  /**
   * @param catalogue all operations, by topic
   * @returns false when it has failed and has reported the reason; `again` when it is to be
   *   repeated
   */
  run(fields: Values<F>, context: Context, catalogue: readonly Topic[]): Promise<RunResult>;
}

/** The headings of the help, in its order. */
export const groups = ['Tenants', 'People', 'Fleet', 'Servers', 'Backup', 'Look'] as const;

/** Operations whose names begin with the same word. */
export interface Topic {
  readonly name: string;
  readonly group: (typeof groups)[number];
  /**
   * A line on what they do, in the list of all commands: at most 60 characters, so that it fits
   * into 80 columns.
   */
  readonly summary: string;
  /** Loads the module that has them. */
  readonly load: () => Promise<{ readonly operations: readonly Operation[] }>;
}

/** Returns the operations of a topic. */
export async function operationsOf({ name, load }: Topic): Promise<readonly Operation[]> {
  const { operations } = await load();
  return operations.filter(operation => operation.name.split(' ')[0] === name);
}

/**
 * True if an operator has to confirm an operation, or give `--yes`, because it locks somebody
 * out or destroys something.
 */
export function needsConfirmation({ effect }: Pick<Operation, 'effect'>): boolean {
  return effect === 'locks out' || effect === 'destroys';
}

/** True if an operation takes `--yes`: an operator confirms it, or some of its values. */
export function takesYes(operation: Operation): boolean {
  return needsConfirmation(operation) || operation.handling.confirms !== undefined;
}

/** Returns the names of the fields that make a change of an operation that reads. */
export function changingFields({ fields }: Pick<Operation, 'fields'>): string[] {
  return Object.keys(fields).filter(name => fields[name]?.isChange);
}

/** Returns whether the log of operators can have an entry of an operation. */
export function isRecorded(operation: Operation): boolean {
  const { effect, handling } = operation;
  return handling.isRoutine === true || effect !== 'reads' || changingFields(operation).length > 0;
}

/**
 * True if an operator can give a reason for the log of operators: some operations have a field
 * for a reason of their own.
 */
export function takesReason(operation: Operation): boolean {
  return isRecorded(operation) && operation.fields.reason === undefined;
}

/** The definition of an operation. By default, it has no fields, and the usual handling. */
export interface Definition<F extends Fields> extends Omit<Operation<F>, 'fields' | 'handling'> {
  readonly fields?: F;
  readonly handling?: Handling<F>;
}

export type NoFields = Readonly<Record<never, never>>;

/** Returns the operation, with the types of its fields checked. */
export function defineOperation<const F extends Fields = NoFields>(
  definition: Definition<F>,
): Operation {
  return { fields: {}, handling: {}, ...definition } as unknown as Operation;
}

/** The appearance of a list as text. */
export interface ListText<Item> {
  /** The columns of an item. */
  readonly row: (item: Item) => object;
  /** Further columns, where there is room for all. */
  readonly wide?: (item: Item) => object;
  /** The name by which other operations know an item. */
  readonly name: (item: Item) => string | number;
  /** The text without any item. */
  readonly empty: string;
}

/** A part of a list whose items are numbered, the newest first. */
export interface ListPage<Item> {
  readonly items: readonly Item[];
  /** The number of items that the filter selects. */
  readonly total: number;
  /** The number of those that are newer than this part. */
  readonly newer: number;
  /** The number of the last item, if older ones follow: `--before` of the next part. */
  readonly older: number | null;
}

/** Takes what an operation returns: a document for programs, or text for people. */
export interface Output {
  /** True where documents are taken, and no text. */
  readonly wantsDocuments: boolean;
  /**
   * Takes the result.
   * @param url what `-o url` prints, of an operation that makes a URL
   */
  result(document: unknown, text: () => string, url?: string): void;
  /** Takes one of several results as soon as it is known. */
  part(document: unknown, text: () => string): void;
  /** Takes text that has no counterpart in the documents. */
  text(text: () => string): void;
  /**
   * Takes the items of a list.
   * @param isWide true to show all columns
   */
  list<Item extends object>(items: readonly Item[], text: ListText<Item>, isWide?: boolean): void;
  /** Takes a part of a list. */
  page<Item extends object>(page: ListPage<Item>, text: ListText<Item>): void;
  warn(message: string): void;
}

/** Takes the progress of an operation. */
export interface Progress {
  /** True where somebody sees the progress, so that its content need not be repeated. */
  readonly isVisible: boolean;
  step(text: string): void;
  /** @param bad the word for the bad ones, which are counted apart; default: `failed` */
  start(total: number, bad?: string): void;
  /** Counts one more. */
  advance(isBad: boolean): void;
}

/**
 * Records the tenant that an operation has made. A tenant's history begins with a row of its
 * own, also where one command makes several tenants, or names another one.
 * @param options `isOnly` is true if the operation makes no other one, and was given no slug:
 *   its own row is then that of the tenant
 */
export type RecordBirth = (slug: string, options?: { readonly isOnly: boolean }) => Promise<void>;

/** The surroundings of an operation: a terminal, a script, or a service. */
export interface Context {
  readonly installation: Installation;
  readonly output: Output;
  readonly progress: Progress;
  /** Aborts when the operation is to end early: see `Handling.interrupt`. */
  readonly signal: AbortSignal;
  /** The span of the operation, if it is traced. */
  readonly trace?: Trace | undefined;
  /** Records the tenant that the operation has made, for the history of the tenant. */
  readonly recordBirth: RecordBirth;
  /**
   * Asks a question that yes or no is the answer to.
   * @returns undefined where nobody can be asked
   */
  agree(question: string): Promise<boolean | undefined>;
}
