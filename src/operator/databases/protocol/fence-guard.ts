import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** A message to the guard process: it protects a tenant from now on, or no longer. */
export interface GuardMessage {
  readonly slug: string;
  readonly isProtected: boolean;
}

/** Puts tenants back into service whose run dies with this process. */
export interface FenceGuard {
  /**
   * Resolves when the tenant is protected. It also resolves when that fails: the next command
   * on the tenant then retreats.
   */
  protect(slug: string): Promise<void>;
  release(slug: string): void;
}

/**
 * Starts a process that outlives this one, so that a tenant does not stay behind its fence when
 * this process is killed, or fails and cannot retreat. It runs while tenants are protected.
 */
export function createFenceGuard(): FenceGuard {
  const slugs = new Set<string>();
  let guard: { process: ChildProcess; started: Promise<void> } | undefined;
  const tell = (message: GuardMessage): void =>
    void (guard?.process.connected && guard.process.send(message, () => {}));

  return {
    protect: async slug => {
      slugs.add(slug);
      guard ??= startProcess();
      tell({ slug, isProtected: true });
      await guard.started;
    },
    release: slug => {
      slugs.delete(slug);
      tell({ slug, isProtected: false });
      if (slugs.size > 0 || !guard?.process.connected) return;
      guard.process.disconnect();
      guard = undefined;
    },
  };
}

function startProcess(): { process: ChildProcess; started: Promise<void> } {
  // Detached, because Ctrl-C and the end of a terminal session reach all processes of the
  // group.
  const guard = fork(fileURLToPath(new URL('./guard-process.ts', import.meta.url)), {
    detached: true,
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  const started = new Promise<void>(resolve => {
    guard.once('message', () => resolve()); // the guard says that it has begun
    guard.once('exit', () => resolve());
    guard.on('error', () => resolve()); // without a guard, the command is run again by hand
  });

  // Until then this process goes on, also when it has lost all of its connections.
  void started.then(() => {
    guard.unref();
    guard.channel?.unref();
  });

  return { process: guard, started };
}
