import { OperatorError } from '../../log/operator-error.ts';
import { isRecorded, type Operation, operationsOf, type Topic } from '../command/operation.ts';

/** Operations that have no page, and why. */
export const withheld: Readonly<Record<string, string>> = {
  console: 'it is what runs already',
  completion: 'it prints a script for a shell',
  'runs watch': 'the page of a run shows its progress by itself',
  'control migrate': 'the console starts with a control database of this build only',
  'control restore': 'the console needs the control database that is restored',
  'control after-restore': 'the console does not start before it is done',
};

/** An operation with a page. */
export interface Offered {
  readonly operation: Operation;
  readonly group: Topic['group'];
  /** Whether this console runs it. */
  readonly isAllowed: boolean;
}

/** What the console offers, by name. */
export type Offer = ReadonlyMap<string, Offered>;

const ofTopics =
  (...topics: string[]) =>
  ({ name }: Operation): boolean =>
    topics.includes(name.split(' ')[0] ?? '');

/** Sets of operations. */
const sets: ReadonlyMap<string, (operation: Operation) => boolean> = new Map([
  ['view', operation => operation.effect === 'reads' && !isRecorded(operation)],
  ['support', ofTopics('user', 'session', 'key')],
  ['migrate', ofTopics('migrate', 'rollback', 'runs')],
  ['all', () => true],
]);

/**
 * Returns the operations with a page, by name.
 * @param allow names of operations and of sets; undefined: all
 * @throws {OperatorError} when a name is neither
 */
export async function offeredOperations(
  catalogue: readonly Topic[],
  allow: readonly string[] | undefined,
): Promise<Offer> {
  const loaded = await Promise.all(
    catalogue.map(async topic => (await operationsOf(topic)).map(operation => ({ operation, group: topic.group }))),
  );
  const all = loaded.flat().filter(({ operation: { name } }) => withheld[name] === undefined);
  for (const name of allow ?? [])
    if (!sets.has(name) && !all.some(({ operation }) => operation.name === name))
      throw new OperatorError(
        `--allow has ${name}, which is neither a command nor one of ${[...sets.keys()].join(', ')}`,
        { usage: true },
      );
  return new Map(
    all.map(({ operation, group }) => [
      operation.name,
      {
        operation,
        group,
        isAllowed: allow === undefined || allow.some(name => name === operation.name || sets.get(name)?.(operation)),
      },
    ]),
  );
}
