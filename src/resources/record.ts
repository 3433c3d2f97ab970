import { snakeCase } from '../casing.ts';
import { type Problem, problem } from '../errors.ts';
import type { FieldErrorCode, FieldErrorParameters } from '../field-error.ts';
import { lengths, text } from '../http/fields.ts';
import type { Condition } from '../postgres/table-statements.ts';

/** The condition that finds a code in any letter case, like the unique index; undefined for an invalid code. */
export function codeCondition(property: string, value: unknown): Condition | undefined {
  const code = text({ max: lengths.code }).safeParse(value);
  return code.success ? [`lower(${snakeCase(property)}) = lower(?)`, code.data] : undefined;
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
