import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { wantsDocuments } from './output.ts';

/**
 * True when an operator can be asked: on a terminal, and not where a program reads documents.
 */
export function canAsk(): boolean {
  return process.stdin.isTTY === true && process.stderr.isTTY === true && !wantsDocuments();
}

/**
 * Asks a question on the terminal. Questions go to stderr, so that stdout has the result only.
 * @param complete returns the possible answers, from the beginning of one; Tab completes it
 * @returns the answer without spaces around it; empty after Ctrl-C or Ctrl-D
 */
export async function readAnswer(
  question: string,
  complete?: (start: string) => Promise<readonly string[]>,
): Promise<string> {
  // The module is loaded only when a question is asked.
  const { createInterface } = await import('node:readline/promises');
  const terminal = createInterface({
    input: process.stdin,
    output: process.stderr,
    ...(complete && {
      completer: async (line: string) => [[...(await complete(line))], line] as [string[], string],
    }),
  });

  // Ctrl-C and Ctrl-D reject the question only in some states of the terminal; they always
  // close it.
  const closed = new Promise<undefined>(resolve =>
    terminal.once('close', () => resolve(undefined)),
  );
  const answer = await Promise.race([
    terminal.question(`${question}: `).catch(() => undefined),
    closed,
  ]);
  terminal.close();
  if (answer === undefined) process.stderr.write('\n');

  return answer?.trim() ?? '';
}

/**
 * Reads a secret that must not appear in the arguments: from a terminal with a prompt and
 * without echo, otherwise all of stdin. Removes a byte order mark, and one line feed at the
 * end.
 * @throws {OperatorError} when the prompt is ended with Ctrl-C or Ctrl-D
 */
export async function readSecret(prompt: string): Promise<string> {
  if (process.stdin.isTTY) return readHidden(prompt);
  let content = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) content += chunk;
  return content.replace(/^\uFEFF/, '').replace(/\r?\n$/, '');
}

function readHidden(prompt: string): Promise<string> {
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({ input: process.stdin, output: nowhere, terminal: true });
  // The question is printed after the terminal has stopped its echo.
  process.stderr.write(`${prompt} (not shown): `);

  return new Promise<string>((resolve, reject) => {
    terminal.once('line', line => {
      resolve(line);
      terminal.close();
    });
    // Ctrl-C and Ctrl-D
    terminal.once('close', () =>
      reject(new OperatorError('Nothing was given: nothing was changed', { usage: true })),
    );
  }).finally(() => process.stderr.write('\n'));
}
