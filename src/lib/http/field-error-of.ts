import type { z } from 'zod';
import type { FieldError } from '../runtime/field-error.ts';

/** Returns the error of a wrong value, without the value. */
export function fieldErrorOf(issue: z.core.$ZodIssue, value: unknown): FieldError {
  if (value === undefined) return { message: 'is required', code: 'required' };

  switch (issue.code) {
    case 'invalid_type': {
      const { expected } = issue;
      const message = expected === 'int' ? 'must be a whole number' : `must be of type ${expected}`;
      return { message, code: 'wrong_type', expected };
    }
    case 'too_small': {
      const min = Number(issue.minimum);
      const message = `must be at least ${lengthText(min, issue.origin)}`;

      if (issue.origin === 'string' && min === 1) {
        return { message: 'must not be empty', code: 'too_short', min };
      }
      return { message, code: issue.origin === 'string' ? 'too_short' : 'too_small', min };
    }
    case 'too_big': {
      const max = Number(issue.maximum);
      const message = `must be at most ${lengthText(max, issue.origin)}`;
      return { message, code: codeOfExcess[issue.origin] ?? 'too_large', max };
    }
    case 'invalid_value':
      return {
        message: `must be one of ${issue.values.join(', ')}`,
        code: 'not_allowed',
        values: issue.values.map(String),
      };
    case 'invalid_format':
      return { message: formatMessages[issue.format] ?? issue.message, code: 'wrong_format' };
    case 'custom':
      return { message: issue.message, code: 'invalid', ...issue.params };
    default:
      return { message: issue.message, code: 'invalid' };
  }
}

/** Returns a bound with its unit: `1 item long`, `8 characters long`, `3`. */
function lengthText(bound: number, origin: string): string {
  const unit = units[origin];
  return unit === undefined ? `${bound}` : `${bound} ${unit}${bound === 1 ? '' : 's'} long`;
}

const units: Partial<Record<string, string>> = { string: 'character', array: 'item' };
const codeOfExcess: Partial<Record<string, FieldError['code']>> = {
  string: 'too_long',
  array: 'too_many',
};

/** The formats whose definition contains no message. */
const formatMessages: Partial<Record<string, string>> = {
  datetime: 'must be a date and time such as 2026-01-31T12:00:00Z',
};
