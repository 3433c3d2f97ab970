import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { serverAddress } from '../postgres/server-address.ts';

/** As long as a process waits for its first connections within the budget. */
const maxWaitMs = 30_000;
const pollMs = 20;

/**
 * The lock under which a process has one connection to a control database without a grant: before its first grant,
 * after it has returned the last one, or for a command that takes no part in the connection budget. One process of a
 * machine at a time has the lock, so they need no more room than the budget keeps for that (`planExchange`).
 *
 * The holder listens on an abstract Unix socket (unix(7)): no two processes can, and the kernel releases the lock of a
 * process that dies. After 30 s a process goes on without the lock: one that stands still, or a program that has taken
 * the name, delays the others and stops none of them. Other systems than Linux have no such sockets, and no lock. A
 * container counts as a machine.
 */
export class EntryLock {
  readonly #path: string;
  #holder: Server | undefined;

  constructor(controlUrl: string) {
    const name = `${serverAddress(controlUrl)}${new URL(controlUrl).pathname}`;
    this.#path = `\0backoffice-${createHash('sha256').update(name).digest('hex')}`;
  }

  /** Acquires the lock. @returns false when others had it for all of this time */
  async acquire(maxMs = maxWaitMs): Promise<boolean> {
    if (process.platform !== 'linux') return true;
    const deadline = performance.now() + maxMs;
    while (!this.#holder) {
      this.#holder = await listen(this.#path);
      if (this.#holder) break;
      if (performance.now() > deadline) return false;
      await delay(pollMs * (0.5 + Math.random()));
    }
    return true;
  }

  /** Lets the next process acquire the lock. Does nothing without it. */
  release(): void {
    this.#holder?.close();
    this.#holder = undefined;
  }
}

/** @returns undefined when another process listens */
async function listen(path: string): Promise<Server | undefined> {
  const server = createServer(socket => socket.destroy()).unref();
  try {
    // Not through the primary process, which would let all its workers listen.
    await once(server.listen({ path, exclusive: true }), 'listening');
    return server;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    return undefined;
  }
}
