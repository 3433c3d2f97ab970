import { Command, type CommanderError } from 'commander';
import { withoutUrls } from '../../lib/log/describe-error.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { printError, wantsDocuments } from './output.ts';

/** The exit code for wrong usage. */
export const exitUsage = 2;

/**
 * Creates a command that exits with 2 on wrong usage, and shows no URL then. Make subcommands
 * with its `command` method: they inherit that.
 */
export function createCommand(name: string): Command {
  return new Command(name)
    .showHelpAfterError('(add --help for the usage)')
    .configureOutput(
      wantsDocuments()
        ? { writeErr: () => {} }
        : { outputError: (text, write) => write(withoutSecrets(text)) },
    )
    .exitOverride(error => {
      if (error.exitCode === 0) process.exit(0);
      if (wantsDocuments()) printError(new OperatorError(usageText(error), { usage: true }));
      process.exit(exitUsage);
    });
}

/**
 * Returns the text of a usage error; commander has none when a command is missing. Secrets are
 * removed from it, because it repeats the arguments.
 */
function usageText({ code, message }: CommanderError): string {
  return code === 'commander.help'
    ? 'Name a command. Add --help to see them'
    : withoutSecrets(message).replace(/^error: /, '');
}

/** Removes from a text the URLs, which may have a password, and the keys of programs. */
function withoutSecrets(text: string): string {
  return withoutUrls(text).replace(/\bsbk_\w+/g, 'sbk_…');
}
