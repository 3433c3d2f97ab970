import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

// A process that runs scripts of this project one after another, each as if it were alone:
// `run-command.ts` starts it. The log of a service, which writes to the file descriptor, is not
// in the result.

/** A script of the command line, with what a new process would get. */
export interface CommandRequest {
  readonly id: number;
  /** Absolute path of the script. */
  readonly script: string;
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly input: string;
}

/** `code` is null if the process would not have ended. */
export interface CommandResult {
  readonly id: number;
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

const maxLingerMs = 20_000;
const pollMs = 2;
const exitCalled = new Error('process.exit');
/** Events of the process that a program listens to until its process ends. */
const processEvents = ['exit', 'uncaughtException', 'SIGINT', 'SIGTERM', 'SIGHUP'] as const;

let output = { stdout: '', stderr: '' };
// Before the first command: the streams count as open once they are used.
for (const stream of ['stdout', 'stderr'] as const) {
  process[stream].setMaxListeners(0); // each start of the service adds one
  process[stream].write = (chunk: string | Uint8Array): boolean => {
    output[stream] += chunk.toString();
    return true;
  };
}

let previous = Promise.resolve();
process.on('message', (request: CommandRequest) => {
  previous = previous.then(async () => void process.send?.(await run(request)));
});
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));

async function run({
  id,
  script,
  args,
  environment,
  input,
}: CommandRequest): Promise<CommandResult> {
  const openBefore = process.getActiveResourcesInfo().length;
  const listenersBefore = processEvents.map(event => process.listeners(event as 'exit'));
  output = { stdout: '', stderr: '' };
  let code: number | null | undefined;

  process.argv = [process.execPath, script, ...args];
  process.env = { ...environment };
  process.exitCode = undefined;
  Object.defineProperty(process, 'stdin', {
    value: Readable.from([Buffer.from(input)]),
    configurable: true,
  });
  process.exit = (status): never => {
    code ??= Number(status ?? process.exitCode ?? 0);
    throw exitCalled;
  };

  try {
    // Another module each time, on modules that are loaded once.
    await import(`${pathToFileURL(script).href}?run=${id}`);
  } catch (error) {
    if (error !== exitCalled) {
      output.stderr += `${(error as Error).stack}\n`;
      code = 1;
    }
  }

  if (!(await hasEnded(openBefore))) {
    output.stderr += `The command leaves open: ${process.getActiveResourcesInfo().join(', ')}\n`;
    code = null;
  }

  for (const [index, event] of processEvents.entries()) {
    for (const listener of process.listeners(event as 'exit')) {
      if (!listenersBefore[index]?.includes(listener)) {
        if (event === 'exit') listener(0);
        process.off(event, listener);
      }
    }
  }

  return { id, code: code === undefined ? Number(process.exitCode ?? 0) : code, ...output };
}

/**
 * Waits until nothing is open that would keep a process alive, beside what was open before the
 * command.
 */
async function hasEnded(openBefore: number): Promise<boolean> {
  const deadline = performance.now() + maxLingerMs;
  while (process.getActiveResourcesInfo().length > openBefore) {
    if (performance.now() > deadline) return false;
    await sleep(pollMs);
  }
  return true;
}
