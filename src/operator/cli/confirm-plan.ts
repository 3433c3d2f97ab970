import { OperatorError } from '../../log/operator-error.ts';
import type { Plan } from '../command/operation.ts';
import { canAsk, readAnswer } from './read-answer.ts';

/**
 * Asks the operator to type a name before an operation destroys something or locks somebody out. A script confirms with
 * `--yes`.
 * @throws {OperatorError} when something else was typed, or stdin is no terminal
 */
export async function confirmPlan(
  { name, consequence, kind = 'slug' }: NonNullable<Plan['confirm']>,
  yes: boolean,
): Promise<void> {
  if (yes) return;
  if (!canAsk())
    throw new OperatorError(`${name} ${consequence}. Add --yes to confirm; nothing was changed`, { usage: true });
  const typed = await readAnswer(`${name} ${consequence}.\nType its ${kind} to confirm`);
  if (typed !== name) throw new OperatorError(`That is not ${name}: nothing was changed`, { usage: true });
}
