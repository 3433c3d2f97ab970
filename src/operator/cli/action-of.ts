import type { Operation } from '../command/operation.ts';
import type { RecordedAction } from '../tenants/record-action.ts';

/** Returns whether the log of operators can have an entry of an operation. */
export function isRecorded({ effect, changingFields, isRoutine }: Operation): boolean {
  return isRoutine === true || effect !== 'reads' || changingFields !== undefined;
}

/**
 * Returns what an operator asks for, for the log of operators; undefined if that has no entry, as it changes nothing.
 * Has no secret.
 * @param given the fields that were given, without defaults
 */
export function actionOf(
  operation: Operation,
  given: Readonly<Record<string, unknown>>,
  reason: string | undefined,
): RecordedAction | undefined {
  const { name, fields, effect, changingFields = [], isRoutine = false } = operation;
  const isChange = isRoutine || effect !== 'reads' || changingFields.some(field => given[field] !== undefined);
  if (!isRecorded(operation) || !isChange) return undefined;
  const {
    slug,
    reason: _,
    ...rest
  } = Object.fromEntries(
    Object.entries(given).map(([field, value]) => [field, fields[field]?.kind === 'secret' ? true : value]),
  );
  const [only, ...more] = [slug].flat();
  const isOne = typeof only === 'string' && more.length === 0;
  return {
    command: name,
    slug: isOne ? only : null,
    arguments: isOne || more.length === 0 ? rest : { slugs: slug, ...rest },
    reason: reason ?? null,
    isRoutine,
  };
}
