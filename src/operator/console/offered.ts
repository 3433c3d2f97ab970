import { OperatorError } from '../../lib/log/operator-error.ts';
import {
  isRecorded,
  type Operation,
  operationsOf,
  type Topic,
  takesReason,
} from '../command/operation.ts';
import { option, requiredOption } from '../command/operation-fields.ts';

/** The operations without a page, with the reason. */
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
  /** With a field for the reason, if the log of operators has one. */
  readonly operation: Operation;
  readonly group: Topic['group'];
  /** True if this console runs the operation. */
  readonly isAllowed: boolean;
}

/** The operations that the console offers, by name. */
export type Offer = ReadonlyMap<string, Offered>;

const isOf = (topics: readonly string[], { name }: Operation): boolean =>
  topics.includes(name.split(' ')[0] ?? '');

/** Sets of operations. */
const sets = new Map<string, (operation: Operation) => boolean>([
  ['view', operation => operation.effect === 'reads' && !isRecorded(operation)],
  ['support', operation => isOf(['user', 'session', 'key'], operation)],
  ['migrate', operation => isOf(['migrate', 'rollback', 'runs'], operation)],
  ['all', () => true],
]);

/**
 * Returns the operations with a page, by name.
 * @param allow names of operations and of sets; undefined: all
 * @param needsReason true for a team, whose log says why
 * @throws {OperatorError} when a name is neither
 */
export async function offeredOperations(
  catalogue: readonly Topic[],
  allow: readonly string[] | undefined,
  needsReason: boolean,
): Promise<Offer> {
  const why = 'why, for the log of operators';
  const reason = needsReason
    ? requiredOption('', why, { kind: 'text' })
    : option('', why, { kind: 'text' });

  const isAllowed = (operation: Operation): boolean =>
    allow === undefined ||
    allow.some(name => name === operation.name || sets.get(name)?.(operation));

  const offer = new Map<string, Offered>();
  for (const topic of catalogue) {
    for (const each of await operationsOf(topic)) {
      const operation = takesReason(each) ? { ...each, fields: { ...each.fields, reason } } : each;
      if (withheld[each.name] === undefined) {
        offer.set(each.name, { operation, group: topic.group, isAllowed: isAllowed(each) });
      }
    }
  }

  const unknown = allow?.find(name => !sets.has(name) && !offer.has(name));
  if (unknown === undefined) return offer;

  const names = [...sets.keys()].join(', ');
  throw new OperatorError(
    `--allow has ${unknown}, which is neither a command nor one of ${names}`,
    { usage: true },
  );
}
