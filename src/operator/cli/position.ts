import type { Command, Option } from 'commander';

/** The place of the next word of a command line. */
export interface Position {
  readonly command: Command;
  /** The arguments of the command before the word. */
  readonly operands: readonly string[];
  /** The option whose value the word is. */
  readonly option: Option | undefined;
}

/** Follows the words to the command that they name. */
export function positionAfter(program: Command, words: readonly string[]): Position {
  let command = program;
  let operands: string[] = [];
  let option: Option | undefined;

  for (const word of words) {
    if (option) {
      option = undefined;
    } else if (word.startsWith('-')) {
      option = command.options.find(
        each => isNamed(each, word) && (each.required || each.optional),
      );
    } else {
      const next =
        operands.length === 0 ? command.commands.find(each => each.name() === word) : undefined;
      operands = next ? [] : [...operands, word];
      command = next ?? command;
    }
  }

  return { command, operands, option };
}

/** Returns whether a word is the flag of an option, without a value in it. */
export function isNamed({ short, long }: Option, word: string): boolean {
  return word === short || word === long;
}
