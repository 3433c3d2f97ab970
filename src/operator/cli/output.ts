import { createRequire } from 'node:module';
import { errorDocument, explain } from '../../operator-error.ts';

/** The options of every command that prints a result. */
export interface OutputOptions {
  /** Print documents, and no text: `--json`, `-o json` or `-o yaml`. */
  json?: boolean;
}

/** Flags and description of `--json`, for `Command.option`. */
export const jsonOption = ['--json', 'print one JSON document on stdout'] as const;

/** Flags and description of `--dry-run`, for `Command.option`. */
export const dryRunOption = ['--dry-run', 'show what would be changed, and change nothing'] as const;

/** What `-o` accepts. `wide` and `name` are for lists: all columns at full width; only the names, for scripts. */
export const formats = ['json', 'yaml', 'wide', 'name'] as const;

/**
 * Returns the format that the command line asks for: known also when its options are wrong.
 * @param args with or without the program and the script
 */
export function outputFormat(args: readonly string[] = process.argv): (typeof formats)[number] | 'text' {
  if (args.includes('--json')) return 'json';
  const at = args.findIndex(arg => /^(-o|--output)/.test(arg));
  const value = /^(?:-o|--output=?)(.*)$/.exec(args[at] ?? '')?.[1] || args[at + 1];
  return at < 0 ? 'text' : (formats.find(format => format === value) ?? 'text');
}

/*
 * These functions are the only code of the command line that writes to stdout. So with `--json` nothing but JSON
 * appears there. Progress, questions and errors go to stderr.
 */

/** Prints the result of a command: one document with `--json`, otherwise the text. */
export function printResult({ json }: OutputOptions, document: unknown, text: () => string): void {
  write(json ? documentText(document, 2) : text());
}

/** Prints one of several results as soon as it is known: one line of JSON with `--json`, otherwise the text. */
export function printPart({ json }: OutputOptions, document: unknown, text: () => string): void {
  write(json ? documentText(document) : text());
}

/** Prints text that the JSON output has no counterpart for. Prints nothing with `--json`. */
export function printText({ json }: OutputOptions, text: () => string): void {
  if (!json) write(text());
}

/** Clears the screen, and prints its first line. Prints nothing where documents are printed. */
export function startScreen(title: string): void {
  if (!wantsDocuments()) write(`\x1b[H\x1b[2J${title}\n`);
}

function write(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** @param indent of JSON; without it, the document is one of several: a line of JSON, or a document of a YAML stream */
function documentText(document: unknown, indent?: number): string {
  if (outputFormat() !== 'yaml') return JSON.stringify(document, null, indent);
  const { stringify } = createRequire(import.meta.url)('yaml') as typeof import('yaml'); // loads when it is needed
  return `${indent === undefined ? '---\n' : ''}${stringify(document, { lineWidth: 0 }).trimEnd()}`;
}

/** True when the command line asks for documents instead of text: known also when its options are wrong. */
export function wantsDocuments(): boolean {
  return ['json', 'yaml'].includes(outputFormat());
}

/** True when progress may be drawn: on a terminal, and not with documents. */
export function showsProgress(): boolean {
  return process.stderr.isTTY && !wantsDocuments();
}

/** Explains an error on stderr: in a sentence, or where documents are printed as one line of JSON. */
export function printError(error: unknown): void {
  process.stderr.write(`${wantsDocuments() ? JSON.stringify({ error: errorDocument(error) }) : explain(error)}\n`);
}

export function printWarning(message: string): void {
  process.stderr.write(`${wantsDocuments() ? JSON.stringify({ warning: { message } }) : `Warning: ${message}`}\n`);
}
