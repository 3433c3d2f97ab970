import { lengths, text } from '../../lib/http/request/fields.ts';
import type { Condition } from '../../lib/postgres/statement.ts';
import { snakeCase } from '../../lib/runtime/casing.ts';

/**
 * The condition that finds a code in any letter case; undefined for an invalid code. The unique
 * index uses the same function of the database.
 */
export function codeCondition(property: string, value: unknown): Condition | undefined {
  const code = codeText.safeParse(value);
  return code.success ? [`code_key(${snakeCase(property)}) = code_key(?)`, code.data] : undefined;
}

/**
 * The contract of a code in a path or a file, also of one that no record can get any more. Made
 * once, because making it takes as long as a query.
 */
export const codeText = text({ max: lengths.code });
