import type { FieldError } from './field-error.ts';

/** The error of a field whose number would change when it is stored. */
export const inexactNumber: FieldError = {
  message: 'has more digits than a number can keep',
  code: 'out_of_range',
};

/** A number, or the fault of its text. */
export type ReadNumber =
  | { readonly number: number; readonly error?: undefined }
  | { readonly number?: undefined; readonly error: FieldError };

/**
 * Reads a number in a cell, a parameter or a word of a command: digits, with a point before
 * decimals. An exponent, as JSON has it, is refused: spreadsheets write one when they have
 * rounded.
 */
export function readDecimal(text: string): ReadNumber {
  if (!/^-?\d{1,400}(\.\d{1,400})?$/.test(text)) {
    const message = 'must be a number in digits, with a point before decimals, such as 1234.5';
    return { error: { message, code: 'wrong_type', expected: 'number' } };
  }
  return isExactNumber(text) ? { number: Number(text) } : { error: inexactNumber };
}

/** The pattern of decimals of at most 15 digits, all of which are exact. */
const shortNumber = /^[-\d.]{1,15}$/;

/**
 * True if the number that JavaScript reads from a literal of JSON (RFC 8259 §6) has exactly the
 * value of the literal: IEEE 754 keeps about 16 digits, and changes further ones silently.
 */
export function isExactNumber(literal: string): boolean {
  return shortNumber.test(literal) || decimalOf(literal) === decimalOf(String(Number(literal)));
}

/**
 * Returns one text for all literals of one value: sign, digits without zeros at either end, and
 * exponent.
 */
function decimalOf(literal: string): string {
  const [, sign = '', whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(literal) ?? [];
  const digits = `${whole}${fraction}`.replace(/^0+/, '');
  const trimmed = digits.replace(/0+$/, '');
  const power = Number(exponent) - fraction.length + (digits.length - trimmed.length);

  return trimmed === '' ? '0' : `${sign}${trimmed}e${power}`;
}
