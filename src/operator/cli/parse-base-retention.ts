import { InvalidArgumentError } from 'commander';
import { type BaseRetention, baseRetention } from '../../config-values.ts';

/** Parses an option as `BASE_BACKUP_KEEP`. */
export function parseBaseRetention(value: string): BaseRetention {
  const parsed = baseRetention.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new InvalidArgumentError(`It ${parsed.error.issues[0]?.message}.`);
}
