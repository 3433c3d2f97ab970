import type { Command } from 'commander';
import type { Action } from '../actions/record-action.ts';

/**
 * Commands that change nothing an operator answers for. All others write a row that `logs` shows. The runs and proofs
 * of backups have a record of their own, and a timer makes hundreds of them a day.
 */
const reading: ReadonlySet<string> = new Set([
  ...['list', 'show', 'status', 'processes', 'usage', 'logs', 'doctor', 'runs list', 'runs show', 'runs watch'],
  ...['user list', 'user role', 'role list', 'session list', 'key list', 'client list', 'packs list', 'packs diff'],
  ...['server list', 'server rebalance', 'move list', 'pool list', 'restore diff', 'completion'],
  ...['backup list', 'backup run', 'backup verify', 'backup drill', 'retention', 'retention log'],
]);

/** Arguments and options that make a change of a command that reads, by the command. */
const changingFields: Readonly<Record<string, readonly string[]>> = {
  doctor: ['fix'],
  retention: ['activity', 'audit'],
  'user role': ['role'],
};
/** Options that let a command only plan. */
const planningOptions = ['dryRun', 'plan'];

/** Options that say how the command runs, and not what it changes. */
const unrecordedOptions = ['json', 'output', 'yes', 'reason'];

/** Returns whether the command can make a change. */
export function canChange(command: Command): boolean {
  const path = pathOf(command);
  return !reading.has(path) || path in changingFields;
}

/** Returns the change that a command line asks for; undefined if it changes nothing. */
export function actionOf(command: Command): Action | undefined {
  const path = pathOf(command);
  const options: Record<string, unknown> = command.opts();
  const values = command.registeredArguments.map((argument, at): [string, unknown] => [
    argument.name(),
    command.processedArgs[at],
  ]);
  const { slug, ...rest } = Object.fromEntries(values);
  const isChange = changingFields[path]?.some(field => (rest[field] ?? options[field]) !== undefined);
  if (planningOptions.some(name => options[name] === true) || (reading.has(path) && !isChange)) return undefined;
  const given = Object.entries(options).filter(
    ([name]) => command.getOptionValueSource(name) === 'cli' && !unrecordedOptions.includes(name),
  );
  const [only, ...more] = [slug].flat();
  const isOne = typeof only === 'string' && more.length === 0;
  return {
    command: path,
    slug: isOne ? only : null,
    arguments: { ...(isOne || more.length === 0 ? rest : { slugs: slug, ...rest }), ...Object.fromEntries(given) },
    reason: typeof options.reason === 'string' ? options.reason : null,
  };
}

/** Returns the words of a command, such as `user add`, without the name of the program. */
export function pathOf(command: Command): string {
  return command.parent?.parent ? `${pathOf(command.parent)} ${command.name()}` : command.name();
}
