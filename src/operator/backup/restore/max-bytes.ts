import { OperatorError } from '../../../lib/log/operator-error.ts';
import { amount } from '../../command/operation-fields.ts';

/** The field of a command that opens archives of which nothing is recorded. */
export const maxBytesField = amount(
  'bytes',
  'the largest archive, unpacked, that is read where nothing is recorded of it; otherwise 200 times its size',
  { label: 'Largest archive', isAdvanced: true, parse: parseBytes },
);

function parseBytes(value: string): number {
  if (!/^[1-9]\d{0,14}$/.test(value)) throw new OperatorError('Give a number of bytes.');
  return Number(value);
}
