import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';

export interface Child {
  readonly name: string;
  readonly pid: number;
  readonly process: ChildProcess;
  /** The last 4,000 characters of its output, for error messages. */
  recentOutput(): string;
  /**
   * Resolves with the first match in its output.
   * @throws {Error} if the process ends before, or after 60 s
   */
  waitForOutput(pattern: RegExp): Promise<RegExpMatchArray>;
  /**
   * Resolves with the exit code; null after a signal or when the process could not be started.
   */
  readonly ended: Promise<number | null>;
  /** Sends SIGTERM, after 10 s SIGKILL, and waits for the end. */
  stop(): Promise<void>;
}

const tailLength = 4_000; // characters
const startMs = 60_000; // long enough for a busy machine
const stopMs = 10_000;

/**
 * The processes that a bench has started. None of them outlives the bench, also when it fails.
 */
export class Children {
  readonly #running = new Set<Child>();

  constructor() {
    // Kills what still runs when the bench ends by an error or a second Ctrl-C.
    process.on('exit', () => {
      for (const child of this.#running) child.process.kill('SIGKILL');
    });
  }

  /**
   * @param environment what it gets beside PATH
   * @param options `ipc`: with a channel for messages; `folder`: its working directory
   */
  start(
    name: string,
    command: string,
    args: string[],
    environment: NodeJS.ProcessEnv = {},
    { ipc = false, folder }: { ipc?: boolean; folder?: string | undefined } = {},
  ): Child {
    const child = spawn(command, args, {
      cwd: folder,
      env: { PATH: process.env.PATH, ...environment },
      stdio: ['ignore', 'pipe', 'pipe', ...(ipc ? (['ipc'] as const) : [])],
      detached: true, // Ctrl-C reaches only the bench, which then stops them in order
    });

    let output = '';
    const listeners = new Set<() => void>();
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (chunk: Buffer) => {
        output = (output + chunk.toString()).slice(-tailLength);
        for (const listener of listeners) listener();
      });
    }

    const ended = new Promise<number | null>(resolve => {
      child.once('error', error => {
        output += String(error);
        this.#running.delete(started);
        resolve(null);
      });
      child.once('close', code => {
        this.#running.delete(started);
        resolve(code);
      });
    });

    const failure = (event: string): Error =>
      new Error(`${name} ${event}: ${output.trim() || 'no output'}`);

    const waitForOutput = async (pattern: RegExp): Promise<RegExpMatchArray> => {
      const timer = new AbortController();
      const match = new Promise<RegExpMatchArray>(resolve => {
        const check = (): void => {
          const found = output.match(pattern);
          if (found) resolve(found);
        };
        listeners.add(check);
        check();
      });

      const late = delay(startMs, undefined, timer).then(() =>
        Promise.reject(failure(`was not ready within ${startMs / 1_000} s`)),
      );
      const early = ended.then(() => Promise.reject(failure('ended')));

      try {
        return await Promise.race([match, late, early]);
      } finally {
        timer.abort();
        late.catch(() => {});
        early.catch(() => {});
      }
    };

    const stop = async (): Promise<void> => {
      if (!this.#running.has(started)) return;
      child.kill('SIGTERM');
      const timer = new AbortController();
      const kill = delay(stopMs, undefined, timer).then(
        () => child.kill('SIGKILL'),
        () => {},
      );

      await ended;
      timer.abort();
      await kill;
    };

    const recentOutput = (): string => output;
    const started: Child = {
      name,
      pid: child.pid ?? 0,
      process: child,
      recentOutput,
      waitForOutput,
      ended,
      stop,
    };

    this.#running.add(started);
    return started;
  }

  /** Stops all running processes concurrently. */
  async stop(): Promise<void> {
    await Promise.all([...this.#running].map(child => child.stop()));
  }
}
