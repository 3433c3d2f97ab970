import { expect } from 'chai';
import type { Command } from 'commander';
import { catalogue } from '../../../src/operator/cli/catalogue.ts';
import { createProgram } from '../../../src/operator/cli/program.ts';
import { operationsOf } from '../../../src/operator/command/operation.ts';

/** Splits a line as a shell does: quotes, comments and redirections. */
function shellWords(line: string): string[] {
  const words = line.match(/"[^"]*"|\S+/g) ?? [];
  const end = words.findIndex(word => ['#', '<', '>', '>>'].includes(word));
  return (end < 0 ? words : words.slice(0, end)).map(word => word.replace(/^"|"$/g, ''));
}

function helpOf(command: Command): string {
  let help = '';
  command.configureOutput({
    writeOut: text => {
      help += text;
    },
  });
  command.outputHelp();
  return help;
}

/** The calls in the examples of a help, each on one line. */
function examplesIn(help: string): string[] {
  const joined = help.replace(/ \\\n +/g, ' ');
  return [...joined.matchAll(/^ {2}bin\/backoffice (.*)$/gm)].map(([, line = '']) => line);
}

describe('help of the command line', () => {
  it('the help of each command has examples in 80 columns, and the program accepts each of them as a call of that command', async () => {
    const program = await createProgram(() => true);
    const operations = new Set(
      (await Promise.all(catalogue.map(operationsOf))).flat().map(({ name }) => name),
    );

    const commands: { path: string; command: Command }[] = [];
    let called = '';

    const visit = (command: Command, path: string): void => {
      commands.push({ path, command });
      command.exitOverride(error => {
        throw error;
      });

      if (operations.has(path) || command.commands.length === 0) {
        command.action(() => {
          called = path;
        });
      }

      for (const each of command.commands) visit(each, `${path} ${each.name()}`);
    };

    for (const command of program.commands) visit(command, command.name());
    const help = helpOf(program);

    for (const { path, command } of commands) {
      const help = helpOf(command);
      const examples = examplesIn(help);
      for (const line of help.split('\n')) {
        expect(line.length, `${path}: ${line}`).to.be.at.most(80);
      }
      expect(examples, `examples in the help of ${path}`).to.not.deep.equal([]);

      for (const line of [...examples]) {
        called = '';
        await program.parseAsync(shellWords(line), { from: 'user' });
        expect(`${called} `, line).to.satisfy((name: string) => name.startsWith(`${path} `));
      }
    }

    for (const line of examplesIn(help)) {
      await program.parseAsync(shellWords(line), { from: 'user' });
    }
  });
});
