import { Command, type CommanderError, InvalidArgumentError } from 'commander';
import { readConfig, settingWarnings } from '../../config.ts';
import { type Installation, openInstallation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import { requireControlHead } from '../control-head.ts';
import { requireMasterKey } from '../require-master-key.ts';
import { printError, printWarning, wantsJson } from './output.ts';

/** Exit codes of the command line. */
const exitFailed = 1;
const exitUsage = 2;

/**
 * Creates a command that exits with 2 on wrong usage. Make subcommands with its `command` method: they inherit that.
 */
export function createCommand(name: string): Command {
  return new Command(name)
    .showHelpAfterError('(add --help for the usage)')
    .configureOutput(wantsJson() ? { writeErr: () => {} } : {})
    .exitOverride(error => {
      if (error.exitCode === 0) process.exit(0);
      if (wantsJson()) printError(new OperatorError(usageText(error), { usage: true }));
      process.exit(exitUsage);
    });
}

/** The text of a usage error; commander has none when a command is missing. */
function usageText({ code, message }: CommanderError): string {
  return code === 'commander.help' ? 'Name a command. Add --help to see them' : message.replace(/^error: /, '');
}

type Action<Arguments extends unknown[]> = (installation: Installation, ...args: Arguments) => Promise<unknown>;

/**
 * Wraps an action so that it runs on the installation that the environment configures. The control database must be at
 * head, and its secrets must be sealed under the configured master key. An error is explained in one line on stderr
 * (as JSON with `--json`) and sets the exit code: 2 for wrong usage, otherwise 1.
 * @param action resolves to `false` when it has failed and printed why; the exit code is then 1
 */
export function withInstallation<Arguments extends unknown[]>(action: Action<Arguments>) {
  return withAnyInstallation(async (installation, ...args: Arguments) => {
    await requireControlHead(installation);
    await requireMasterKey(installation.control.em, installation.secrets);
    return action(installation, ...args);
  });
}

/** Like `withInstallation`, but the control database may be missing, or at any version. */
export function withAnyInstallation<Arguments extends unknown[]>(action: Action<Arguments>) {
  return async (...args: Arguments): Promise<void> => {
    let installation: Installation | undefined;
    try {
      for (const warning of settingWarnings()) printWarning(warning);
      installation = await openInstallation(readConfig());
      if ((await action(installation, ...args)) === false) process.exitCode = exitFailed;
    } catch (error) {
      printError(error);
      process.exitCode = error instanceof OperatorError && error.usage ? exitUsage : exitFailed;
    } finally {
      await installation?.close();
    }
  };
}

/** Parses the value of an option that must be a whole number above 0. */
export function parsePositive(value: string): number {
  if (!/^[1-9]\d{0,8}$/.test(value)) throw new InvalidArgumentError('Give a whole number above 0.');
  return Number(value);
}
