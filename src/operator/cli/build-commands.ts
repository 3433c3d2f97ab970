import { type Command, Option } from 'commander';
import { isConfirmed, type Operation, type Topic, takesReason } from '../command/operation.ts';
import { addFields, givenFields } from './command-fields.ts';
import type { FrontEnd } from './front-end.ts';
import { formats, wantsDocuments } from './output.ts';

/** Adds the command of a topic with all of its operations. @param frontEnd creates that of the command that runs */
export function addTopic(
  program: Command,
  { name, summary }: Topic,
  operations: readonly Operation[],
  frontEnd: () => Promise<FrontEnd>,
): void {
  const topic = program.command(name).description(summary);
  for (const operation of operations) {
    const [, word] = operation.name.split(' ');
    addOperation(word === undefined ? topic : topic.command(word), operation, frontEnd);
  }
  if (operations.every(operation => operation.name !== name))
    addExamples(
      topic,
      operations.flatMap(({ examples }) => examples.slice(0, 1)),
    );
}

/** Makes a command of an operation: its arguments and options, its help, and what it runs. */
function addOperation(command: Command, operation: Operation, frontEnd: () => Promise<FrontEnd>): void {
  const { description, fields, help, examples, plan, repeats, json } = operation;
  command.description(description);
  addFields(command, fields);
  if (plan) {
    command.option('--dry-run', operation.dryRun ?? 'show what would be changed, and change nothing');
    command.addOption(new Option('--plan', 'another name of --dry-run').implies({ dryRun: true }).hideHelp());
  }
  if (isConfirmed(operation)) command.option('--yes', 'do not ask for confirmation');
  if (repeats === 'sometimes') command.option('--watch', 'show it again every 2 seconds, until Ctrl-C');
  if (json !== false) addOutputOptions(command, operation);
  if (help) command.addHelpText('after', `\n${help}`);
  addExamples(command, examples);
  command.action(async () => {
    const { perform } = await import('./perform.ts');
    const { dryRun = false, yes = false, watch = false, reason } = command.opts();
    const given = givenFields(command, fields);
    await perform({ operation, given, dryRun, yes, watch, reason }, await frontEnd());
  });
}

/** Adds the options that all commands have which print documents. */
function addOutputOptions(command: Command, operation: Operation): void {
  command.option('--json', operation.json || 'print one JSON document on stdout');
  const { isList = false, makesUrl = false } = operation;
  const choices = formats.filter(format => {
    if (format === 'url') return makesUrl;
    return isList || format === 'json' || format === 'yaml';
  });
  const meaning = makesUrl ? 'print a document, or only the URL' : 'print documents, or a list in another way';
  command.addOption(new Option('-o, --output <format>', meaning).choices(choices));
  if (takesReason(operation)) command.option('--reason <text>', 'why, for the log of operators (npx backoffice logs)');
  command.hook('preAction', (_, action) => {
    if (wantsDocuments()) action.setOptionValue('json', true);
  });
}

/** Adds examples to the end of the help of a command. */
function addExamples(command: Command, lines: readonly string[]): void {
  command.addHelpText('after', () => examplesText(lines));
}

function examplesText(lines: readonly string[]): string {
  const commands = lines.map(line => line.replace(/ # .*/, ''));
  const width = Math.max(...commands.map(({ length }) => length));
  const texts = lines.map((line, at) => {
    const comment = / # .*/.exec(line)?.[0] ?? '';
    return `  npx backoffice ${commands[at]?.padEnd(comment ? width : 0)}${comment && ` ${comment}`}`;
  });
  return `\nExamples:\n${texts.join('\n')}`;
}
