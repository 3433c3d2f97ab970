import type { Operation } from '../command/operation.ts';
import type { Action } from '../tenants/record-action.ts';

/** Returns whether the log of operators can have an entry of an operation. */
export function isRecorded({ effect, changingFields, isUnrecorded }: Operation): boolean {
  return !isUnrecorded && (effect !== 'reads' || changingFields !== undefined);
}

/**
 * Returns the change that an operator asks for, for the log of operators; undefined if it changes nothing. Has no
 * secret.
 * @param given the fields that were given, without defaults
 */
export function actionOf(
  operation: Operation,
  given: Readonly<Record<string, unknown>>,
  reason: string | undefined,
): Action | undefined {
  const { name, fields, effect, changingFields = [] } = operation;
  const isChange = effect !== 'reads' || changingFields.some(field => given[field] !== undefined);
  if (!isRecorded(operation) || !isChange) return undefined;
  const { slug, ...rest } = Object.fromEntries(
    Object.entries(given).map(([field, value]) => [field, fields[field]?.kind === 'secret' ? true : value]),
  );
  const [only, ...more] = [slug].flat();
  const isOne = typeof only === 'string' && more.length === 0;
  return {
    command: name,
    slug: isOne ? only : null,
    arguments: isOne || more.length === 0 ? rest : { slugs: slug, ...rest },
    reason: reason ?? null,
  };
}
