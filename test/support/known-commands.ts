import { expect } from 'chai';
import type { Command } from 'commander';

/**
 * Expects that the words of a line name a command of the program, and only options that it has.
 */
export function expectKnownCommand(program: Command, words: readonly string[]): void {
  const line = words.join(' ');
  const child = (of: Command, word: string) => of.commands.find(command => command.name() === word);
  const command = words.reduce<Command>((at, word) => child(at, word) ?? at, program);
  expect(command, line).not.to.equal(program);
  const known = ['--help', ...command.options.map(({ long }) => long)];
  for (const option of words.filter(word => word.startsWith('--'))) {
    expect(known, line).to.include(option);
  }
}
