import { Command, type CommanderError, InvalidArgumentError } from 'commander';
import type { Installation, InstallationAccess } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import type { Statements } from '../../postgres/statements.ts';
import { printError, printWarning, wantsDocuments } from './output.ts';

// A command imports what it needs when it runs: most of the time of a short command is the loading of modules.

/** Exit codes of the command line. */
const exitFailed = 1;
const exitUsage = 2;

/**
 * Creates a command that exits with 2 on wrong usage. Make subcommands with its `command` method: they inherit that.
 */
export function createCommand(name: string): Command {
  return new Command(name)
    .showHelpAfterError('(add --help for the usage)')
    .configureOutput(wantsDocuments() ? { writeErr: () => {} } : {})
    .exitOverride(error => {
      if (error.exitCode === 0) process.exit(0);
      if (wantsDocuments()) printError(new OperatorError(usageText(error), { usage: true }));
      process.exit(exitUsage);
    });
}

/** The text of a usage error; commander has none when a command is missing. */
function usageText({ code, message }: CommanderError): string {
  return code === 'commander.help' ? 'Name a command. Add --help to see them' : message.replace(/^error: /, '');
}

type Action<Context, Arguments extends unknown[]> = (context: Context, ...args: Arguments) => Promise<unknown>;

/**
 * Wraps an action so that it runs on the installation that the environment configures. The control database must be at
 * head, and its secrets must be sealed under the configured master key. An error is explained in one line on stderr
 * (as JSON with `--json`) and sets the exit code: 2 for wrong usage, otherwise 1.
 * @param action resolves to `false` when it has failed and printed why; the exit code is then 1
 */
export function withInstallation<Arguments extends unknown[]>(action: Action<Installation, Arguments>) {
  return onInstallation(async (installation, ...args: Arguments) => {
    const { requireControlHead } = await import('../control-head.ts');
    await requireControlHead(installation);
    return withBudget(installation, () => recorded(installation, args, () => action(installation, ...args)));
  });
}

/** Runs the work of a command within `CONNECTION_BUDGET`, as far as the control database is there already. */
export async function withBudget<T>(installation: Installation, work: () => Promise<T>): Promise<T> {
  const { readConfig } = await import('../../config.ts');
  const { withConnectionBudget } = await import('../command-connections.ts');
  return withConnectionBudget(installation, readConfig().connectionBudget, printWarning, work);
}

/**
 * Like `withInstallation`, but the control database may be missing, or at any version: the change is recorded at its
 * end.
 */
export function withAnyInstallation<Arguments extends unknown[]>(action: Action<Installation, Arguments>) {
  return onInstallation(async (installation, ...args: Arguments) => {
    const work = action(installation, ...args);
    await work.catch(() => {});
    await recorded(installation, args, () => work).catch(() => {}); // without a schema there is no table for it
    return work;
  });
}

function onInstallation<Arguments extends unknown[]>(action: Action<Installation, Arguments>) {
  return explainingErrors(async (...args: Arguments) => {
    const { openInstallation } = await import('../../installation.ts');
    const installation = await openInstallation(await readSettings(), 'command');
    return action(installation, ...args).finally(installation.close);
  });
}

/** What an action needs that only runs statements on the control database. */
interface ControlStatements extends InstallationAccess {
  readonly statements: Statements;
}

/**
 * Like `withInstallation`, for an action that only runs statements on the control database, which starts sooner. It
 * uses one connection, in the room that the connection budget leaves for that, and so works while the budget is used
 * up.
 */
export function withStatements<Arguments extends unknown[]>(action: Action<ControlStatements, Arguments>) {
  return explainingErrors(async (...args: Arguments) => {
    const { openAccess } = await import('../../installation.ts');
    const { withControlHead } = await import('../control-head.ts');
    const access = await openAccess(await readSettings());
    return withControlHead(access, statements => {
      const control = { ...access, statements };
      return recorded(control, args, () => action(control, ...args));
    }).finally(access.close);
  });
}

/**
 * Runs the work of a command, and records it if it changes something. commander passes the command as the last
 * argument.
 */
async function recorded(
  { statements }: { readonly statements: Statements },
  args: readonly unknown[],
  work: () => Promise<unknown>,
): Promise<unknown> {
  const command = args.at(-1);
  const { actionOf } = await import('./action-of.ts');
  const action = command instanceof Command ? actionOf(command) : undefined;
  if (!action) return work();
  const { recordAction } = await import('../actions/record-action.ts');
  return recordAction(statements, action, work);
}

function explainingErrors<Arguments extends unknown[]>(work: (...args: Arguments) => Promise<unknown>) {
  return async (...args: Arguments): Promise<void> => {
    try {
      if ((await work(...args)) === false) process.exitCode = exitFailed;
    } catch (error) {
      printError(error);
      process.exitCode = error instanceof OperatorError && error.usage ? exitUsage : exitFailed;
    }
  };
}

async function readSettings() {
  const { readConfig, settingWarnings } = await import('../../config.ts');
  for (const warning of settingWarnings()) printWarning(warning);
  return readConfig();
}

/** Parses the value of an option that must be a whole number above 0. */
export function parsePositive(value: string): number {
  if (!/^[1-9]\d{0,8}$/.test(value)) throw new InvalidArgumentError('Give a whole number above 0.');
  return Number(value);
}
