import { Command, Help, Option } from 'commander';
import { OperatorError } from '../../lib/log/operator-error.ts';
import {
  groups,
  type Operation,
  operationsOf,
  type Topic,
  takesReason,
  takesYes,
} from '../command/operation.ts';
import { wrap } from '../command/text-table.ts';
import { unwrapped } from '../command/texts.ts';
import { catalogue } from './catalogue.ts';
import { createCommand } from './command.ts';
import { addFields, givenFields } from './command-fields.ts';
import { type FrontEnd, formats, printError, printLine, wantsDocuments } from './output.ts';
import type { Position } from './position.ts';
import { canAsk } from './read-answer.ts';

/** The width of a help that is not printed on a terminal: the default of commander. */
const defaultWidth = 80;

/**
 * Adds the command of a topic with all of its operations.
 * @param frontEnd creates that of the command that runs
 */
function addTopic(
  program: Command,
  { name, summary }: Topic,
  operations: readonly Operation[],
  frontEnd: () => Promise<FrontEnd>,
): void {
  const topic = program
    .command(name)
    .description(summary)
    .helpCommand('help [command]', 'show the help of a command');
  for (const operation of operations) {
    addOperation(commandOf(topic, operation, operations), operation, frontEnd);
  }

  if (operations.every(operation => operation.name !== name)) {
    addExamples(
      topic,
      operations.flatMap(({ help }) => help.examples.slice(0, 1)),
    );
  }
}

/**
 * Returns the command of an operation, below that of its topic. Operations that share a second
 * word, such as `program key add`, share the command of that word, which lists their verbs.
 */
function commandOf(topic: Command, { name }: Operation, all: readonly Operation[]): Command {
  const words = name.split(' ');

  return words.slice(1).reduce((above, word, at) => {
    const made = above.commands.find(each => each.name() === word);
    if (made) return made;

    const path = `${words.slice(0, at + 2).join(' ')} `;
    const below = all.filter(each => each.name.startsWith(path));
    const command = above.command(word);
    if (below.length === 0) return command;

    addExamples(
      command,
      below.flatMap(({ help }) => help.examples.slice(0, 1)),
    );
    return command
      .description(below.map(each => each.name.slice(path.length)).join(', '))
      .helpCommand('help [command]', 'show the help of a command');
  }, topic);
}

/** Makes a command of an operation: its arguments and options, its help, and what it runs. */
function addOperation(
  command: Command,
  operation: Operation,
  frontEnd: () => Promise<FrontEnd>,
): void {
  const { fields, help, handling, plan } = operation;

  const prompt = Object.values(fields).find(
    field => field.kind === 'secret' && field.isRequired,
  )?.prompt;
  command.description(
    prompt === undefined ? help.description : `${help.description}; reads from stdin: ${prompt}`,
  );

  addFields(command, fields);
  if (plan) {
    command.option('--dry-run', help.dryRun ?? 'show what would be changed, and change nothing');
  }
  if (takesYes(operation)) {
    command.option('--yes', 'do not ask for confirmation');
  }
  if (handling.repeats === 'sometimes') {
    command.option('--watch', 'show it again every 2 seconds, until Ctrl-C');
  }
  if (handling.result !== 'text') addOutputOptions(command, operation);

  const { more, exitCodes } = help;
  if (more) command.addHelpText('after', () => paragraphsText(more));
  if (exitCodes) command.addHelpText('after', () => paragraphsText(`Exit code: ${exitCodes}.`));
  addExamples(command, help.examples);

  command.action(async () => {
    const { perform } = await import('./perform.ts');
    const { dryRun = false, yes = false, watch = false, reason } = command.opts();
    const given = givenFields(command, fields);
    await perform({ operation, given, dryRun, yes, watch, reason }, await frontEnd());
  });
}

/** Adds the options that all commands have which print documents. */
function addOutputOptions(command: Command, operation: Operation): void {
  const { help, handling } = operation;
  const isList = handling.result === 'list';
  const isUrl = handling.result === 'url';
  const choices = formats.filter(format => {
    if (format === 'url') return isUrl;
    return isList || format === 'json' || format === 'yaml';
  });
  const more = isList ? ', or the list in another way' : isUrl ? ', or only the URL' : '';

  command.addOption(
    new Option('--json', help.json ?? 'print one JSON document on stdout').conflicts('output'),
  );
  command.addOption(
    new Option('-o, --output <format>', `print a document${more}`).choices(choices),
  );
  if (takesReason(operation)) {
    command.option('--reason <text>', 'why, for the log of operators (bin/backoffice logs)');
  }
  command.hook('preAction', (_, action) => {
    if (wantsDocuments()) action.setOptionValue('json', true);
  });
}

/**
 * Wraps paragraphs to the width of the help. Lines that begin with spaces are commands, and
 * stay as they are.
 */
function paragraphsText(text: string): string {
  const width = process.stdout.columns || defaultWidth;

  return text
    .split('\n\n')
    .map(
      paragraph =>
        `\n${unwrapped(paragraph)
          .flatMap(line => (line.startsWith(' ') ? [line] : wrap(line, width)))
          .join('\n')}`,
    )
    .join('\n');
}

/** Adds examples to the end of the help of a command. */
function addExamples(command: Command, lines: readonly string[]): void {
  command.addHelpText('after', () => examplesText(lines));
}

/**
 * Returns the examples with their comments beside them, or where that would be too wide, with
 * each comment above its command, and long commands on several lines.
 */
function examplesText(lines: readonly string[]): string {
  const examples = lines.map(line => {
    const [, command = line, comment = ''] = /^(.*?) # (.*)$/.exec(line) ?? [];
    return { command: `bin/backoffice ${command.trimEnd()}`, comment };
  });

  const width = Math.max(...examples.map(({ command }) => command.length));
  const beside = examples.map(({ command, comment }) =>
    comment === '' ? `  ${command}` : `  ${command.padEnd(width)}  # ${comment}`,
  );
  const fits = beside.every(({ length }) => length <= defaultWidth);
  const texts = fits ? beside : examples.flatMap(exampleLines);

  return `\nExamples:\n${texts.join('\n')}`;
}

function exampleLines({ command, comment }: { command: string; comment: string }): string[] {
  const comments = comment === '' ? [] : wrap(comment, defaultWidth - 4);
  return [...comments.map(line => `  # ${line}`), ...continuedLines(command)];
}

/** Breaks a command before options and redirections, as a shell takes it. */
function continuedLines(command: string): string[] {
  const lines: string[] = [];

  for (const part of command.split(/ (?=--|[<>])/)) {
    const last = lines.at(-1);
    const joined = `${last} ${part}`;
    // The backslash needs two columns more.
    if (last !== undefined && joined.length + 2 <= defaultWidth) lines[lines.length - 1] = joined;
    else lines.push(`${last === undefined ? '  ' : '    '}${part}`);
  }

  return lines.map((line, at) => (at < lines.length - 1 ? `${line} \\` : line));
}

const examples = `
Examples:
  bin/backoffice provision acme --name "Acme Ltd" --admin-email admin@acme.test
  bin/backoffice list --status suspended
  bin/backoffice migrate --all --canary 2
  bin/backoffice doctor

Each command has examples and all of its options in its own help, such as
bin/backoffice move --help
Exit codes: 0 done, 1 failed, 2 wrong usage. The handbook is docs/operate.md.`;

const terminal = async (): Promise<FrontEnd> =>
  (await import('./terminal-front-end.ts')).createTerminalFrontEnd();

/**
 * Runs the command line. `__complete` is for the scripts of `completion`, `__run` for the
 * console, and `__perform` for a command whose plan the console has shown.
 * @param args without the program and the script
 */
export async function runProgram(args: readonly string[]): Promise<void> {
  process.stdout.off('error', onOutputError).on('error', onOutputError);

  if (args[0] === '--version' || args[0] === '-V') {
    const { printVersion } = await import('./print-version.ts');
    return printVersion();
  }

  if (args[0] === '__complete') {
    const { complete } = await import('./complete.ts');
    for (const { value, description = '' } of await complete(args.slice(1), createProgram)) {
      printLine(`${value}\t${description}`);
    }
    return;
  }

  const isOfConsole = args[0] === '__run' || args[0] === '__perform';
  const words = isOfConsole ? args.slice(1) : args;

  const consoleFrontEnd = async (): Promise<FrontEnd> => {
    const { createConsoleFrontEnd } = await import('./console-front-end.ts');
    return createConsoleFrontEnd(args[0] === '__perform');
  };

  const program = await createProgram(
    name => name === topicOf(words),
    isOfConsole ? consoleFrontEnd : terminal,
  );

  const known = asksForHelp(words) ? await helpOfKnown(program, words) : words;
  const answered = canAsk()
    ? await (await import('./ask-missing.ts')).askMissing(program, known)
    : known;
  await program.parseAsync(answered, { from: 'user' });
}

const helpOptions = ['-h', '--help'];

/** The word that stands before the name of a command, to show its help. */
const helpWord = 'help';

function asksForHelp(words: readonly string[]): boolean {
  return words.some(word => word === helpWord || helpOptions.includes(word));
}

/**
 * Returns the words with the option `--help` in place of the word `help`. Without the option if
 * they name no command: the program then names the word that it does not know, instead of
 * printing the help of another command.
 */
async function helpOfKnown(program: Command, given: readonly string[]): Promise<readonly string[]> {
  const { positionAfter } = await import('./position.ts');
  const words = withHelpOption(given, positionAfter(program, wordsBeforeHelp(given)));
  if (!words.some(word => helpOptions.includes(word))) return words;

  const { command, operands } = positionAfter(program, words);
  const isUnknown =
    operands.length > 0 && command.commands.length > 0 && command.registeredArguments.length === 0;

  return isUnknown ? words.filter(word => !helpOptions.includes(word)) : words;
}

function wordsBeforeHelp(words: readonly string[]): readonly string[] {
  return words.slice(0, Math.max(0, words.indexOf(helpWord)));
}

/**
 * Returns the words with `--help` at their end in place of `help`, if that stands where the name
 * of a command does: `user help add` is `user add --help`, and `list --search help` stays.
 * @param position of the first `help`
 */
function withHelpOption(
  words: readonly string[],
  { command, operands, option }: Position,
): readonly string[] {
  const at = words.indexOf(helpWord);
  const isName = at !== -1 && !option && operands.length === 0 && command.commands.length > 0;

  return isName ? [...words.toSpliced(at, 1), '--help'] : words;
}

/**
 * Handles an error of stdout. A reader that has read enough (`| head -1`) closes the pipe; the
 * command goes on, because a change must not end in the middle. Another error, such as that of
 * a full disk, is a failure.
 */
function onOutputError({ code }: NodeJS.ErrnoException): void {
  if (code === 'EPIPE' || process.exitCode) return;
  process.exitCode = 1;
  printError(
    new OperatorError(`Standard output cannot be written (${code}): the result is incomplete`),
  );
}

/**
 * Builds the program with all commands of the top level.
 * @param isNeeded whether a command of the top level is complete; another one has only its name
 *   and its summary
 * @param frontEnd creates that of the command that runs
 */
export async function createProgram(
  isNeeded: (name: string) => boolean,
  frontEnd = terminal,
): Promise<Command> {
  const program = createCommand('bin/backoffice')
    .description(
      'Operates the sales back office: its tenants, their users and databases, servers and ' +
        'backups.',
    )
    .usage('<command> [options]')
    .option('-V, --version', 'show the build')
    .helpOption('-h, --help', 'show the help of a command')
    // `move settle --json`: the option is that of `settle`, although `move` has one, too
    .enablePositionalOptions()
    .configureHelp({ subcommandTerm })
    .addHelpText('after', examples);

  for (const group of groups) {
    for (const topic of catalogue.filter(each => each.group === group)) {
      if (isNeeded(topic.name)) addTopic(program, topic, await operationsOf(topic), frontEnd);
      else program.command(topic.name);
      program.commands.at(-1)?.summary(topic.summary).helpGroup(`${group}:`);
    }
  }

  const help = new Command('help')
    .argument('[command]')
    .summary('show the help of a command')
    .helpGroup('Look:');
  return program.addHelpCommand(help);
}

/**
 * Returns the name of the command of the top level in the arguments: the first one that is no
 * option, and not the word that asks for its help.
 */
function topicOf(args: readonly string[]): string | undefined {
  return args.find(arg => !arg.startsWith('-') && arg !== helpWord);
}

/** Returns the entry of a command in the list of all commands: only its name. */
function subcommandTerm(this: Help, command: Command): string {
  return command.parent?.parent
    ? Help.prototype.subcommandTerm.call(this, command)
    : command.name();
}
