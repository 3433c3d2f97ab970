import { randomBytes } from 'node:crypto';
import type { Prefixed } from '../../../control/control-entities.ts';

/** Returns a new name for a database that a drill makes and drops. */
export function scratchName({ prefix }: Prefixed): string {
  return `${prefix}_drill_${randomBytes(6).toString('hex')}`;
}

export function isScratchName({ prefix }: Prefixed, name: string): boolean {
  return new RegExp(`^${prefix}_drill_[0-9a-f]{12}$`).test(name);
}
