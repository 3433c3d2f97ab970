import { AsyncLocalStorage } from 'node:async_hooks';
import { EntryLock } from '../../control/entry-lock.ts';
import type { InstallationAccess } from '../../installation.ts';
import { withConnectionGate } from '../../postgres/connection.ts';
import type { Statements } from '../../postgres/statements.ts';
import { withControlHead } from './control-head.ts';

/** Between two statements: longer than a command computes, and shorter than others should wait for the lock. */
const idleMs = 200;

/**
 * Runs `work` with statements on the control database, which must be at head (`withControlHead`), outside of the
 * connection budget: on one connection at a time, under the entry lock. While no statement runs, as during a
 * question or between two rounds of `--watch`, the connection is closed, and other processes may have the lock.
 * @throws {OperatorError} as `withControlHead`
 */
export async function withBriefConnections<T>(
  access: InstallationAccess,
  work: (statements: Statements) => Promise<T>,
): Promise<T> {
  const connections = new BriefConnections(access);
  try {
    await connections.check();
    return await withConnectionGate(connections, () => work(connections));
  } finally {
    await connections.close();
  }
}

interface Connection {
  readonly statements: Statements;
  /** Resolves when the connection is closed. */
  close(): Promise<void>;
}

class BriefConnections implements Statements {
  readonly processId = undefined;
  readonly #access: InstallationAccess;
  readonly #entry: EntryLock;
  /** Opens a connection without the gate that this is. */
  readonly #outside = AsyncLocalStorage.snapshot();
  #connection: Promise<Connection> | undefined;
  #closed: Promise<void> = Promise.resolve();
  #running = 0;
  /** Connections under the lock. */
  #present = 0;
  #idle: NodeJS.Timeout | undefined;

  constructor(access: InstallationAccess) {
    this.#access = access;
    this.#entry = new EntryLock(access.controlUrl);
  }

  async execute<Rows extends object[]>(...statement: Parameters<Statements['execute']>): Promise<Rows> {
    clearTimeout(this.#idle);
    this.#running++;
    try {
      return await (await this.#open()).statements.execute<Rows>(...statement);
    } finally {
      if (--this.#running === 0) this.#closeLater();
    }
  }

  /**
   * Checks the control database, as an operation without a statement needs it too.
   * @throws as `withBriefConnections`
   */
  async check(): Promise<void> {
    await this.#open();
    this.#closeLater();
  }

  /** As `ConnectionGate.acquire`, for a further connection of the operation. */
  async acquire(): Promise<{ count: number; release: () => void }> {
    if (this.#running === 0) await this.close();
    await this.#enter();
    return { count: 1, release: () => this.#exit() };
  }

  /** @throws as `withBriefConnections` */
  #open(): Promise<Connection> {
    this.#connection ??= this.#closed.then(async () => {
      try {
        await this.#enter();
        return await this.#outside(openConnection, this.#access).catch(error => {
          this.#exit();
          throw error;
        });
      } catch (error) {
        this.#connection = undefined;
        throw error;
      }
    });
    return this.#connection;
  }

  /** Closes the connection of the statements. Never rejects. */
  close(): Promise<void> {
    clearTimeout(this.#idle);
    const last = this.#connection;
    this.#connection = undefined;
    const close = async ({ close }: Connection): Promise<void> => close().finally(() => this.#exit());
    if (last !== undefined) this.#closed = last.then(close).catch(() => {});
    return this.#closed;
  }

  #closeLater(): void {
    this.#idle = setTimeout(() => void this.close(), idleMs).unref();
  }

  async #enter(): Promise<void> {
    await this.#entry.acquire();
    this.#present++;
  }

  #exit(): void {
    if (--this.#present === 0) this.#entry.release();
  }
}

/** @throws as `withControlHead` */
function openConnection(access: InstallationAccess): Promise<Connection> {
  const opened = Promise.withResolvers<Connection>();
  const closing = Promise.withResolvers<void>();
  const closed = withControlHead(access, async statements => {
    const close = (): Promise<void> => {
      closing.resolve();
      return closed;
    };
    opened.resolve({ statements, close });
    await closing.promise;
  });
  closed.catch(opened.reject);
  return opened.promise;
}
