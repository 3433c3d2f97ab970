import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** A message to the guard process: it protects a tenant from now on, or no longer. */
export interface GuardMessage {
  readonly slug: string;
  readonly isProtected: boolean;
}

/** Puts tenants back into service whose move dies with this process. */
export interface MoveGuard {
  protect(slug: string): void;
  release(slug: string): void;
}

/**
 * Starts a process that outlives this one, so that a tenant does not stay behind its fence when this process is killed,
 * or fails and cannot retreat. It runs while tenants are protected.
 */
export function createMoveGuard(): MoveGuard {
  const slugs = new Set<string>();
  let guard: ChildProcess | undefined;
  const tell = (message: GuardMessage): void => void (guard?.connected && guard.send(message, () => {}));
  return {
    protect: slug => {
      slugs.add(slug);
      guard ??= startProcess();
      tell({ slug, isProtected: true });
    },
    release: slug => {
      slugs.delete(slug);
      tell({ slug, isProtected: false });
      if (slugs.size > 0 || !guard?.connected) return;
      guard.disconnect();
      guard = undefined;
    },
  };
}

function startProcess(): ChildProcess {
  // Detached, because Ctrl-C and the end of a terminal session reach all processes of the group.
  const guard = fork(fileURLToPath(new URL('./guard-process.ts', import.meta.url)), {
    detached: true,
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  guard.on('error', () => {}); // without a guard, `move resume` does its work
  guard.unref();
  guard.channel?.unref();
  return guard;
}
