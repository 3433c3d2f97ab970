import { errorDocument, explain } from '../../operator-error.ts';

/** The options of every command that prints a result. */
export interface OutputOptions {
  json?: boolean;
}

/** Flags and description of `--json`, for `Command.option`. */
export const jsonOption = ['--json', 'print one JSON document on stdout'] as const;

/*
 * These three functions are the only code of the command line that writes to stdout. So with `--json` nothing but JSON
 * appears there. Progress, questions and errors go to stderr.
 */

/** Prints the result of a command: one JSON document with `--json`, otherwise the text. */
export function printResult({ json }: OutputOptions, document: unknown, text: () => string): void {
  write(json ? JSON.stringify(document, null, 2) : text());
}

/** Prints one of several results as soon as it is known: one line of JSON with `--json`, otherwise the text. */
export function printPart({ json }: OutputOptions, document: unknown, text: () => string): void {
  write(json ? JSON.stringify(document) : text());
}

/** Prints text that the JSON output has no counterpart for. Prints nothing with `--json`. */
export function printText({ json }: OutputOptions, text: () => string): void {
  if (!json) write(text());
}

function write(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** True when the command line has `--json`: known also when its options are wrong. */
export function wantsJson(): boolean {
  return process.argv.includes('--json');
}

/** True when progress may be drawn: on a terminal, and not with `--json`. */
export function showsProgress(): boolean {
  return process.stderr.isTTY && !wantsJson();
}

/** Explains an error on stderr: in a sentence, or with `--json` as one line of JSON. */
export function printError(error: unknown): void {
  process.stderr.write(`${wantsJson() ? JSON.stringify({ error: errorDocument(error) }) : explain(error)}\n`);
}

export function printWarning(message: string): void {
  process.stderr.write(`${wantsJson() ? JSON.stringify({ warning: { message } }) : `Warning: ${message}`}\n`);
}
