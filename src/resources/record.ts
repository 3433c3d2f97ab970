import { snakeCase } from '../casing.ts';
import { type Problem, problem } from '../errors.ts';
import type { FieldErrorCode, FieldErrorParameters } from '../field-error.ts';
import { lengths, text } from '../http/fields.ts';
import type { Condition } from '../postgres/table-statements.ts';

/**
 * The condition that finds a code in any letter case; undefined for an invalid code. The unique index uses the same
 * function of the database.
 */
export function codeCondition(property: string, value: unknown): Condition | undefined {
  const code = text({ max: lengths.code }).safeParse(value);
  return code.success ? [`code_key(${snakeCase(property)}) = code_key(?)`, code.data] : undefined;
}

/** The problem of a record that is refused because of one of its fields. */
export function fieldProblem(
  field: string,
  message: string,
  code: FieldErrorCode,
  parameters: FieldErrorParameters = {},
): Problem {
  return problem('validation_failed', { errors: { [field]: [{ message, code, ...parameters }] } });
}
