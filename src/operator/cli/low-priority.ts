import { readdirSync } from 'node:fs';
import { constants, getPriority, setPriority } from 'node:os';

/**
 * Runs `work`, and the processes that it starts, with a lower priority than the service, which may run on the same
 * machine. It takes longer only while others need the processor.
 */
export async function withLowPriority<T>(work: () => Promise<T>): Promise<T> {
  const before = getPriority();
  changePriority(Math.max(before, constants.priority.PRIORITY_BELOW_NORMAL));
  try {
    return await work();
  } finally {
    changePriority(before);
  }
}

/** Only root may raise a priority; the command ends then, anyway. */
function changePriority(priority: number): void {
  for (const thread of listThreads())
    try {
      setPriority(thread, priority);
    } catch {
      // The thread has ended, or a container forbids it. The command runs at the priority that it has.
    }
}

/**
 * Returns the threads of this process. Linux gives each thread a priority of its own, and those that collect garbage
 * for V8 began before. Elsewhere 0, which is the process.
 */
function listThreads(): number[] {
  try {
    return readdirSync('/proc/self/task').map(Number);
  } catch {
    return [0];
  }
}
