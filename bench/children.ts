import { type ChildProcess, spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';

export interface Child {
  readonly name: string;
  readonly pid: number;
  readonly process: ChildProcess;
  /** The last of what it wrote, for when it fails. */
  tail(): string;
  /** Resolves with the first match in what it writes. @throws when it ends before, or takes longer than 60 s */
  wrote(pattern: RegExp): Promise<RegExpMatchArray>;
  /** Resolves with its exit code. */
  readonly ended: Promise<number | null>;
  stop(): Promise<void>;
}

const tailLength = 4_000; // characters
const startMs = 60_000; // a machine that is busy
const stopMs = 10_000;

/** The processes a bench has started; whatever happens, none of them outlives it. */
export class Children {
  readonly #running = new Set<ChildProcess>();

  constructor() {
    // Whoever is left when the bench ends by an error or a second Ctrl-C.
    process.on('exit', () => {
      for (const child of this.#running) child.kill('SIGKILL');
    });
  }

  start(name: string, command: string, args: string[], environment: NodeJS.ProcessEnv = {}, ipc = false): Child {
    const child = spawn(command, args, {
      env: { PATH: process.env.PATH, ...environment },
      stdio: ['ignore', 'pipe', 'pipe', ...(ipc ? (['ipc'] as const) : [])],
      detached: true, // Ctrl-C is for the bench, which then ends them in order
    });
    this.#running.add(child);
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
        this.#running.delete(child);
        resolve(null);
      });
      child.once('close', code => {
        this.#running.delete(child);
        resolve(code);
      });
    });
    const failure = (what: string): Error => new Error(`${name} ${what}: ${output.trim() || 'it wrote nothing'}`);
    const wrote = async (pattern: RegExp): Promise<RegExpMatchArray> => {
      const waited = new AbortController();
      const match = new Promise<RegExpMatchArray>(resolve => {
        const look = (): void => {
          const found = output.match(pattern);
          if (found) resolve(found);
        };
        listeners.add(look);
        look();
      });
      const late = delay(startMs, undefined, waited).then(() => Promise.reject(failure('is not ready in time')));
      const early = ended.then(() => Promise.reject(failure('ended')));
      try {
        return await Promise.race([match, late, early]);
      } finally {
        waited.abort();
        late.catch(() => {});
        early.catch(() => {});
      }
    };
    const stop = async (): Promise<void> => {
      if (!this.#running.has(child)) return;
      child.kill('SIGTERM');
      const waited = new AbortController();
      const kill = delay(stopMs, undefined, waited).then(
        () => child.kill('SIGKILL'),
        () => {},
      );
      await ended;
      waited.abort();
      await kill;
    };
    return { name, pid: child.pid ?? 0, process: child, tail: () => output, wrote, ended, stop };
  }

  /** Ends all that run, at once. */
  async stop(): Promise<void> {
    await Promise.all(
      [...this.#running].map(
        child =>
          new Promise<void>(resolve => {
            child.once('close', () => resolve());
            child.kill('SIGTERM');
            setTimeout(() => child.kill('SIGKILL'), stopMs).unref();
          }),
      ),
    );
  }
}
