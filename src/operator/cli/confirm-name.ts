import { OperatorError } from '../../operator-error.ts';
import { canAsk, readAnswer } from './read-answer.ts';

/**
 * Asks the operator to type a name before a command destroys something. A script confirms with `--yes`.
 * @param consequence completes a sentence that begins with the name: "will not be served"
 * @param kind what the name is
 * @throws {OperatorError} when something else was typed, or stdin is no terminal
 */
export async function confirmName(
  name: string,
  consequence: string,
  yes = false,
  kind: 'slug' | 'name' | 'address' = 'slug',
): Promise<void> {
  if (yes) return;
  if (!canAsk())
    throw new OperatorError(`${name} ${consequence}. Add --yes to confirm; nothing was changed`, { usage: true });
  const typed = await readAnswer(`${name} ${consequence}.\nType its ${kind} to confirm`);
  if (typed !== name) throw new OperatorError(`That is not ${name}: nothing was changed`, { usage: true });
}
