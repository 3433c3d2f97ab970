import { createInterface } from 'node:readline/promises';
import { OperatorError } from '../../operator-error.ts';

/**
 * Asks the operator to type the slug before a command destroys something. A script confirms with `--yes`.
 * @param consequence completes a sentence that begins with the slug: "will not be served"
 * @throws {OperatorError} when something else was typed, or stdin is no terminal
 */
export async function confirmSlug(slug: string, consequence: string, yes = false): Promise<void> {
  if (yes) return;
  if (!process.stdin.isTTY)
    throw new OperatorError(`${slug} ${consequence}. Add --yes to confirm; nothing was changed`, { usage: true });
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const typed = await terminal
    .question(`${slug} ${consequence}.\nType its slug to confirm: `)
    .catch(() => '\n') // Ctrl-C or Ctrl-D
    .finally(() => terminal.close());
  if (typed === '\n') process.stderr.write('\n');
  if (typed.trim() !== slug) throw new OperatorError(`That is not ${slug}: nothing was changed`, { usage: true });
}
