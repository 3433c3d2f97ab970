import { type ChildProcess, fork } from 'node:child_process';
import { isAbsolute, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { CommandRequest, CommandResult } from './command-host.ts';
import { nodeOptions, root, type ScriptResult } from './command-line.ts';

let host: ChildProcess | undefined;
let lastId = 0;
let pending = 0;

/**
 * Runs a script like `runScript`, but in a process that has run others before: its modules are loaded, which saves 0.2
 * to 0.4 s of CPU time per command. Commands run one after another. `code` is null when something that the command left
 * open would have kept its process alive. For commands at the same time, signals, and whatever depends on a process of
 * its own there is `runScript`.
 */
export function runCommand(
  script: string,
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
  input = '',
): Promise<ScriptResult> {
  host ??= startHost();
  const running = host;
  const id = ++lastId;
  const request: CommandRequest = {
    id,
    script: isAbsolute(script) ? script : join(root, script),
    args,
    environment: { PATH: process.env.PATH ?? '', ...environment },
    input,
  };
  keepAlive(running, ++pending > 0);
  return new Promise<ScriptResult>((resolve, reject) => {
    const onExit = (): void => {
      host = undefined;
      reject(new Error(`the process that runs commands ended during ${args.join(' ')}`));
    };
    const onMessage = (result: CommandResult): void => {
      if (result.id !== id) return;
      running.off('message', onMessage).off('exit', onExit);
      resolve({ code: result.code, signal: null, stdout: result.stdout, stderr: result.stderr });
    };
    running.on('message', onMessage).once('exit', onExit);
    running.send(request);
  }).finally(() => keepAlive(running, --pending > 0));
}

/** It ends with this process, and keeps it alive only while a command runs. */
function startHost(): ChildProcess {
  const script = fileURLToPath(new URL('command-host.ts', import.meta.url));
  const child = fork(script, [], { cwd: root, execArgv: nodeOptions, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  child.setMaxListeners(0);
  return child;
}

/** Lets the host keep this process alive, or not. */
function keepAlive(child: ChildProcess, isNeeded: boolean): void {
  if (isNeeded) child.ref();
  else child.unref();
  if (isNeeded) child.channel?.ref();
  else child.channel?.unref();
}
