import { Command, InvalidArgumentError } from 'commander';
import { readConfig } from '../../config.ts';
import { controlHead, controlVersion } from '../../control/database.ts';
import { type Installation, openInstallation } from '../../installation.ts';
import { explain, OperatorError } from '../../operator-error.ts';
import { createControlDatabase, migrateControl } from '../migrations/migrate-control.ts';
import { colourful, tableLines } from './text-table.ts';

/** Exit codes of the command line. */
const failed = 1;
const wrongUsage = 2;

/** A command whose mistakes of usage end with 2. Make subcommands with its `command`, so that they behave alike. */
export function createCommand(name: string): Command {
  return new Command(name)
    .showHelpAfterError('(add --help for the usage)')
    .exitOverride(error => process.exit(error.exitCode === 0 ? 0 : wrongUsage));
}

/**
 * Runs an action on the installation that the environment names, and tells what goes wrong in one line on stderr.
 * An action that resolves to `false` has failed and said why.
 */
export function withInstallation<Arguments extends unknown[]>(
  action: (installation: Installation, ...args: Arguments) => Promise<unknown>,
) {
  return async (...args: Arguments): Promise<void> => {
    let installation: Installation | undefined;
    try {
      installation = await openInstallation(readConfig());
      await requireSchema(installation);
      if ((await action(installation, ...args)) === false) process.exitCode = failed;
    } catch (error) {
      process.stderr.write(`${explain(error)}\n`);
      process.exitCode = error instanceof OperatorError && error.usage ? wrongUsage : failed;
    } finally {
      await installation?.close();
    }
  };
}

async function requireSchema({ control, controlUrl, embedded }: Installation): Promise<void> {
  if (embedded) {
    await createControlDatabase(controlUrl);
    await migrateControl(controlUrl);
  } else if ((await controlVersion(control)) !== (await controlHead())) {
    throw new OperatorError('the control database is not at the version of this build: run npm run control -- migrate');
  }
}

/** Reads the value of an option that is a whole number above 0. */
export function positive(value: string): number {
  if (!/^[1-9]\d{0,8}$/.test(value)) throw new InvalidArgumentError('a whole number above 0 is needed');
  return Number(value);
}

/** One JSON document on stdout. */
export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
}

/** Rows as aligned columns, as wide as the terminal; the keys of the first row are the heading. */
export function printTable(rows: Record<string, unknown>[], whenEmpty: string): void {
  const lines = rows.length > 0 ? tableLines(rows, process.stdout.columns || undefined) : [whenEmpty];
  process.stdout.write(`${lines.join('\n')}\n`);
}

/** Names and values below each other. */
export function printFields(fields: Record<string, unknown>): void {
  const width = Math.max(...Object.keys(fields).map(name => name.length));
  for (const [name, value] of Object.entries(fields))
    process.stdout.write(`${name.padEnd(width)}  ${colourful(String(value ?? '–'))}\n`);
}

/** All of stdin, for a secret that must not stand in the arguments. The last line feed is not part of it. */
export async function readStdin(): Promise<string> {
  let content = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) content += chunk;
  return content.replace(/\r?\n$/, '');
}
