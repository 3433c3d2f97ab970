import { createRequire } from 'node:module';
import { errorDocument, explain } from '../../lib/log/operator-error.ts';
import { pageText } from '../command/list-parts.ts';
import type { Output, Plan, Progress } from '../command/operation.ts';
import { messageText, tableText } from '../command/text-table.ts';

/**
 * Progress that can be removed, and that tells whether it counts: that decides the effect of
 * Ctrl-C.
 */
export interface CommandProgress extends Progress {
  /** True once the progress counts. */
  readonly counts: boolean;
  end(): void;
}

/** The part of a command that shows its progress and its result, and asks questions. */
export interface FrontEnd {
  readonly progress: CommandProgress;
  /**
   * True if the operator has seen the plan of the command: the plan is made again, and
   * `confirm` compares the two.
   */
  readonly isPlanned: boolean;
  /** @param isRepeated true if the command returns several results */
  output(isRepeated: boolean): Output;
  /** Asks a question; see `Context.agree`. */
  agree(question: string): Promise<boolean | undefined>;
  /**
   * Has a plan confirmed, if the plan asks for that.
   * @throws {OperatorError} when it is not
   */
  confirm(plan: Plan, yes: boolean): Promise<void>;
  showPlan(plan: Plan, output: Output): void;
  /** Called when an operation that reads has found something to correct, such as `doctor`. */
  found(): void;
}

/**
 * The formats that `-o` accepts. `wide` and `name` are for lists: all columns at full width;
 * only the names, for scripts. `url` is for operations that make a URL: only the URL, for a
 * file.
 */
export const formats = ['json', 'yaml', 'wide', 'name', 'url'] as const;

/**
 * Returns the format that the command line asks for: known also when its options are wrong.
 * @param args with or without the program and the script
 */
function outputFormat(args: readonly string[] = process.argv): (typeof formats)[number] | 'text' {
  if (args.includes('--json')) return 'json';
  const at = args.findIndex(arg => /^(-o|--output)/.test(arg));
  const value = /^(?:-o|--output=?)(.*)$/.exec(args[at] ?? '')?.[1] || args[at + 1];
  return at < 0 ? 'text' : (formats.find(format => format === value) ?? 'text');
}

/*
 * These functions are the only code of the command line that writes to stdout. So with `--json`
 * nothing but JSON appears there. Progress, questions and errors go to stderr.
 */

/**
 * Prints the result of an operation, in the format that the command line asks for.
 * @param isRepeated true for one of several results, such as with `--watch`: with `--json`, one
 *   line
 * @param beforeText clears the present line of the terminal
 */
export function createOutput(isRepeated: boolean, beforeText: () => void): Output {
  const documents = wantsDocuments();

  const print: Output['result'] = (document, text, url) => {
    beforeText();
    const shown = outputFormat() === 'url' && url !== undefined ? () => url : text;
    printLine(documents ? documentText(document, isRepeated ? undefined : 2) : shown());
  };

  const list: Output['list'] = (items, { row, wide, name, empty }, isWide = false) => {
    const format = isWide && !documents ? 'wide' : outputFormat();
    if (format === 'name') {
      if (items.length > 0) print(items, () => items.map(name).join('\n'));
      return;
    }

    const all = (): object[] => items.map(item => ({ ...row(item), ...wide?.(item) }));
    print(items, () =>
      format === 'wide'
        ? tableText(all(), empty, Number.POSITIVE_INFINITY)
        : tableText(items.map(row), empty),
    );
  };

  return {
    wantsDocuments: documents,
    result: print,
    part: (document, text) => {
      beforeText();
      printLine(documents ? documentText(document) : text());
    },
    text: text => {
      beforeText();
      if (!documents) printLine(text());
    },
    list,
    page: (page, text) => {
      if (documents) return print(page, () => '');
      list(page.items, text);

      const part = pageText(page);
      const next = page.older === null ? '' : ` Older ones: add --before ${page.older}`;
      if (part !== undefined && outputFormat() !== 'name') printLine(`\n${part}.${next}`);
    },
    warn: printWarning,
  };
}

/** Clears the screen, and prints the first line. Prints nothing where documents are printed. */
export function startScreen(title: string): void {
  if (!wantsDocuments()) printLine(`\x1b[H\x1b[2J${title}`);
}

export function printLine(text: string): void {
  process.stdout.write(`${text}\n`);
}

/**
 * @param indent of JSON; without it, the document is one of several: a line of JSON, or a
 *   document of a YAML stream
 */
function documentText(document: unknown, indent?: number): string {
  if (outputFormat() !== 'yaml') return JSON.stringify(document, null, indent);
  // The module is loaded when it is needed.
  const yaml = createRequire(import.meta.url)('yaml') as typeof import('yaml');
  const text = yamlText(document, yaml);
  return `${indent === undefined ? '---\n' : ''}${text.trimEnd()}`;
}

/**
 * Writes a document of YAML that readers of YAML 1.1 and 1.2 read alike: in 1.1, `no` without
 * quotes is false, `12:30` a number, and `=` a type of its own.
 */
function yamlText(document: unknown, { Document, visit }: typeof import('yaml')): string {
  const yaml = new Document(document, { compat: 'yaml-1.1' });

  visit(yaml, {
    Scalar(_, node) {
      if (node.value === '=') node.type = 'QUOTE_DOUBLE';
    },
  });

  return yaml.toString({ lineWidth: 0 });
}

/**
 * True when the command line asks for documents instead of text: known also when its options
 * are wrong.
 */
export function wantsDocuments(): boolean {
  return ['json', 'yaml'].includes(outputFormat());
}

/**
 * Explains an error on stderr: in a sentence, or where documents are printed as one line of
 * JSON.
 */
export function printError(error: unknown): void {
  process.stderr.write(
    `${wantsDocuments() ? JSON.stringify({ error: errorDocument(error) }) : messageText(explain(error))}\n`,
  );
}

export function printWarning(message: string): void {
  process.stderr.write(
    `${wantsDocuments() ? JSON.stringify({ warning: { message } }) : `Warning: ${messageText(message)}`}\n`,
  );
}
