import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { serverAddress } from '../postgres/server-address.ts';

/** As long as a process waits for its first connections within the budget. */
const maxWaitMs = 30_000;
const pollMs = 20;

/**
 * The turn of this process to have one connection to a control database without a grant: before its first grant, after
 * it has returned the last one, or for a command that takes no part in the connection budget. The processes of one
 * machine take turns, so that they need no more room than the budget keeps for that (`planExchange`).
 *
 * Who has the turn listens on an abstract Unix socket (unix(7)): no two processes can, and the kernel ends the turn of
 * a process that dies. After 30 s a process goes on without its turn: one that stands still, or a program that has taken
 * the name, delays the others and stops none of them. Elsewhere than on Linux there are no such sockets, and no turns. A
 * container counts as a machine.
 */
export class EntryTurn {
  readonly #path: string;
  #holder: Server | undefined;

  constructor(controlUrl: string) {
    const name = `${serverAddress(controlUrl)}${new URL(controlUrl).pathname}`;
    this.#path = `\0backoffice-${createHash('sha256').update(name).digest('hex')}`;
  }

  /** Takes the turn. @returns false when others had it for all of this time */
  async take(maxMs = maxWaitMs): Promise<boolean> {
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

  /** Lets the next process have the turn. Does nothing without it. */
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
