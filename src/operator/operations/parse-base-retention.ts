import { type BaseRetention, baseRetention } from '../../config-values.ts';
import { OperatorError } from '../../operator-error.ts';

/** Parses an option as `BASE_BACKUP_KEEP`. */
export function parseBaseRetention(value: string): BaseRetention {
  const parsed = baseRetention.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new OperatorError(`It ${parsed.error.issues[0]?.message}.`);
}
