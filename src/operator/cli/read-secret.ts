import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';
import { OperatorError } from '../../log/operator-error.ts';

/**
 * Reads a secret that must not appear in the arguments: from a terminal with a prompt and without echo, otherwise all
 * of stdin. Removes one line feed at the end.
 * @throws {OperatorError} when the prompt is ended with Ctrl-C or Ctrl-D
 */
export async function readSecret(prompt: string): Promise<string> {
  if (process.stdin.isTTY) return readHidden(prompt);
  let content = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) content += chunk;
  return content.replace(/\r?\n$/, '');
}

function readHidden(prompt: string): Promise<string> {
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const terminal = createInterface({ input: process.stdin, output: nowhere, terminal: true });
  process.stderr.write(`${prompt} (not shown): `); // after the terminal has stopped its echo
  return new Promise<string>((resolve, reject) => {
    terminal.once('line', line => {
      resolve(line);
      terminal.close();
    });
    // Ctrl-C and Ctrl-D
    terminal.once('close', () => reject(new OperatorError('Nothing was given: nothing was changed', { usage: true })));
  }).finally(() => process.stderr.write('\n'));
}
