import { environment } from './process-environment.ts';

/** Returns whether archives are sealed with age: the new way, until the former one is removed. */
export function usesAge(): boolean {
  return environment().BACKUP_FORMAT === 'age';
}
