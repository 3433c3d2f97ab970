import { OperatorError } from '../../lib/log/operator-error.ts';

/**
 * @returns the slugs of the tenants; undefined: all
 * @throws {OperatorError} unless either tenants or all are named
 */
export function chosenSlugs(slugs: readonly string[], all: boolean): readonly string[] | undefined {
  if ((slugs.length === 0) === !all) {
    throw new OperatorError('Either name tenants, or give --all', { usage: true });
  }
  return all ? undefined : slugs;
}
