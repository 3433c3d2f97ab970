import { once } from 'node:events';
import type { Target } from './targets.ts';

/** Memory of a process, in MB: heap with external memory, and resident set. */
export interface Memory {
  readonly heap: number;
  readonly resident: number;
}

/**
 * Reads the memory of a service that was started with the probe.
 * @param how whether to collect garbage first
 */
export async function memoryOf({ child }: Target, how: 'collect' | 'read'): Promise<Memory> {
  const message = once(child.process, 'message');
  child.process.send?.(how);
  const [{ heap, rss }] = (await message) as [{ heap: number; rss: number }];
  return { heap: heap / 1024 ** 2, resident: rss / 1024 ** 2 };
}
