import { z } from 'zod';
import type { FieldError, FieldErrors } from '../../runtime/field-error.ts';

/** Maximum errors of one body, which may have 30,000 wrong members. */
export const maxErrors = 100;

/**
 * Returns the errors of the values that a contract refuses, at most 100. A member of a list has
 * an error of its own, by its place: `EntityIds[1]`.
 */
export function fieldErrorsOf(
  contract: z.ZodObject,
  issues: readonly z.core.$ZodIssue[],
  values: Record<string, unknown>,
): FieldErrors {
  const errors: FieldErrors = {};

  for (const issue of issues.slice(0, maxErrors)) {
    const [field = '', ...members] = issue.path;
    const name = [field, ...members.map(member => `[${String(member)}]`)].map(String).join('');
    const value = issue.path.reduce<unknown>(
      (whole, member) =>
        typeof whole === 'object' && whole !== null ? Reflect.get(whole, member) : undefined,
      values,
    );

    errors[name] ??= [fieldErrorOf(issue, value, memberOf(contract.shape[String(field)], members))];
  }

  return errors;
}

/** Returns the field that an error is about, of the name of the field or of its member. */
export function fieldNameOf(name: string): string {
  return name.replace(/\[.*$/, '');
}

/** Returns the schema of a field, or of a member of it, that a value has which is not null. */
export function memberOf(schema: unknown, path: readonly PropertyKey[]): unknown {
  if (schema instanceof z.ZodPipe) return memberOf(schema.in, path);
  if (
    schema instanceof z.ZodOptional ||
    schema instanceof z.ZodNullable ||
    schema instanceof z.ZodDefault
  ) {
    return memberOf(schema.unwrap(), path);
  }
  const [member, ...rest] = path;
  if (member === undefined) return schema;
  if (schema instanceof z.ZodObject) return memberOf(schema.shape[String(member)], rest);
  return schema instanceof z.ZodArray ? memberOf(schema.element, rest) : schema;
}

/**
 * Returns the error of a wrong value, without the value.
 * @param schema of the value
 */
export function fieldErrorOf(
  issue: z.core.$ZodIssue,
  value: unknown,
  schema?: unknown,
): FieldError {
  if (value === undefined) return { message: 'is required', code: 'required' };

  switch (issue.code) {
    case 'invalid_type': {
      const isWhole = issue.expected === 'int' || (schema instanceof z.ZodNumber && schema.isInt);
      if (isWhole) return { message: wholeNumber, code: 'wrong_type', expected: 'int' };

      const { expected } = issue;
      return { message: `must be of type ${expected}`, code: 'wrong_type', expected };
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

/** The text of a value that is no whole number, whatever else it is. */
const wholeNumber = 'must be a whole number';

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
