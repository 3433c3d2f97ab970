import type { Argument, Command, Option } from 'commander';
import { storedKindOf } from '../command/operation-fields.ts';
import type { Candidate } from '../command/stored-values.ts';
import { fieldOf } from './command-fields.ts';
import { isNamed, type Position, positionAfter } from './position.ts';

/**
 * Returns the words that can stand at the end of a command line.
 * @param words from the name of the command on; the last one is the beginning of the word
 * @param createProgram builds the program with one complete command of the top level
 */
export async function complete(
  words: readonly string[],
  createProgram: (isNeeded: (name: string) => boolean) => Promise<Command>,
): Promise<Candidate[]> {
  const before = words.slice(0, -1);
  const start = words.at(-1) ?? '';
  const topic = before.find(word => !word.startsWith('-') && word !== 'help');
  const program = await createProgram(name => name === topic);
  const position = positionAfter(program, before[0] === 'help' ? before.slice(1) : before);
  const candidates = await candidatesAt(position, before, start);
  return candidates.filter(({ value }) => value.startsWith(start));
}

async function candidatesAt(
  { command, operands, option }: Position,
  before: readonly string[],
  start: string,
): Promise<Candidate[]> {
  if (option) return candidatesFor(option, operands, start);
  if (start.startsWith('-')) return optionsOf(command, before);

  const { registeredArguments } = command;
  const last = registeredArguments.at(-1);
  const argument = registeredArguments[operands.length] ?? (last?.variadic ? last : undefined);
  const values = argument ? await candidatesFor(argument, operands, start) : [];
  const commands = operands.length === 0 ? command.commands : [];

  return [
    ...commands.map(each => ({
      value: each.name(),
      description: each.summary() || each.description(),
    })),
    ...values,
  ];
}

function optionsOf(command: Command, before: readonly string[]): Candidate[] {
  const unused = command.options.filter(
    option => !option.hidden && !before.some(word => isNamed(option, word)),
  );
  const help = { value: '--help', description: 'show the help of the command' };
  return [...unused.map(({ long, description }) => ({ value: long ?? '', description })), help];
}

/**
 * Returns the candidates for an argument or option.
 * @param operands the arguments before it
 */
export async function candidatesFor(
  made: Argument | Option,
  operands: readonly string[],
  start: string,
): Promise<Candidate[]> {
  if (made.argChoices) return made.argChoices.map(value => ({ value }));
  const field = fieldOf(made);
  const kind = field && storedKindOf(field);
  if (!kind) return [];
  const { storedValues } = await import('../command/stored-values.ts');
  return storedValues(kind, start, operands[0]);
}
