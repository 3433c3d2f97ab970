import { OperatorError } from '../../log/operator-error.ts';

/** Parses the value of a field that must be a whole number above 0. */
export function parsePositive(value: string): number {
  if (!/^[1-9]\d{0,8}$/.test(value)) throw new OperatorError('Give a whole number above 0.');
  return Number(value);
}
