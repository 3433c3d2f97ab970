import { snakeCase } from '../casing.ts';
import { type Problem, type ProblemCode, problem } from '../errors.ts';
import { lengths, text } from '../http/fields.ts';
import type { Condition } from '../postgres/table-statements.ts';

/** The condition that finds a code without regard to letter case, as the unique index has it; undefined for no code at all. */
export function codeCondition(property: string, value: unknown): Condition | undefined {
  const code = text({ max: lengths.code }).safeParse(value);
  return code.success ? [`lower(${snakeCase(property)}) = lower(?)`, code.data] : undefined;
}

/** Refuses a record for what one of its fields is or refers to. */
export function fieldProblem(field: string, message: string, code: ProblemCode = 'validation_failed'): Problem {
  return problem(code, { errors: { [field]: [message] } });
}
