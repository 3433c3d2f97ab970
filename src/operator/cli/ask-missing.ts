import type { Argument, Command, Option } from 'commander';
import { storedKindOf } from '../command/operation-fields.ts';
import type { Candidate } from '../command/stored-values.ts';
import { fieldLabel } from '../command/texts.ts';
import { fieldOf } from './command-fields.ts';
import { isNamed, positionAfter } from './position.ts';
import { readAnswer } from './read-answer.ts';

/**
 * Asks on the terminal for the arguments and options that a command line lacks. Tab completes a
 * tenant, a user, and every other value that the control database has. An empty answer ends the
 * questions: the command then names what is missing.
 * @param args from the name of the command on
 * @returns the arguments with the answers
 */
export async function askMissing(program: Command, args: readonly string[]): Promise<string[]> {
  const { command, operands, option } = positionAfter(program, args);
  const answered = [...args];
  if (option || args.some(arg => ['help', '--help', '-h', '--'].includes(arg))) return answered;

  let slug = operands[0];
  for (const field of missingFields(command, operands.length, args)) {
    const answer = await ask(field, slug);
    if (answer === '') return answered;
    slug ??= answer;
    if (isOption(field)) answered.push(`${field.long}=${answer}`);
    else answered.push(...(field.variadic ? answer.split(/\s+/) : [answer]));
  }

  return answered;
}

function missingFields(
  command: Command,
  given: number,
  args: readonly string[],
): (Argument | Option)[] {
  const isNeeded = (made: Argument | Option): boolean => {
    const unless = fieldOf(made)?.neededUnless;
    return unless !== undefined && !args.includes(`--${unless}`);
  };
  const isGiven = (option: Option): boolean =>
    args.some(arg => isNamed(option, arg) || arg.startsWith(`${option.long}=`));
  return [
    ...command.registeredArguments.slice(given).filter(each => each.required || isNeeded(each)),
    ...command.options.filter(each => (each.mandatory || isNeeded(each)) && !isGiven(each)),
  ];
}

function ask(field: Argument | Option, slug: string | undefined): Promise<string> {
  const name = isOption(field) ? field.attributeName() : field.name();
  const choices = field.argChoices;
  const made = fieldOf(field);
  const hint =
    choices?.join(', ') ??
    (made && storedKindOf(made) ? 'Tab shows what there is' : field.description);
  const label = fieldLabel(name, made);

  return readAnswer(hint ? `${label} (${hint})` : label, async start => {
    const { candidatesFor } = await import('./complete.ts');
    const values = await candidatesFor(field, slug === undefined ? [] : [slug], start);
    return shownCandidates(values.filter(({ value }) => value.startsWith(start)));
  });
}

/**
 * Returns what Tab shows: the only value, which it inserts, or each one with its meaning,
 * because a number or an id says nothing.
 */
export function shownCandidates(candidates: readonly Candidate[]): string[] {
  const isOnly = candidates.length === 1;
  return candidates.map(({ value, description }) =>
    isOnly || description === undefined ? value : `${value}  ${description}`,
  );
}

function isOption(field: Argument | Option): field is Option {
  return 'attributeName' in field;
}
