import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { dirname, isAbsolute, join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath, pathToFileURL } from 'node:url';

export const root = fileURLToPath(new URL('../..', import.meta.url));
/**
 * Returns the folder of the build that a script belongs to: this one, or a copy such as
 * `makeNextBuild` makes.
 * @param script the path of a program of a build, in `scripts` or `src`
 */
export function buildOf(script: string): string {
  return isAbsolute(script) && !script.startsWith(root) ? join(dirname(script), '..') : root;
}

/**
 * Returns the options of Node with which the npm scripts of a build start a program. Those of
 * another build would not find the compiled code of its files, which takes up to 0.5 s of CPU
 * time.
 */
export function nodeOptions(build = root): string[] {
  return ['require-node.js', 'v8-flags.ts'].flatMap(file => [
    '--import',
    pathToFileURL(join(build, 'src/lib/runtime', file)).href,
  ]);
}

/** Returns words as a line of a POSIX shell, whatever letters they have. */
export function shellLine(words: readonly string[]): string {
  return words.map(word => `'${word.replaceAll("'", "'\\''")}'`).join(' ');
}

/** Exit status and output of a process that has ended. */
export interface ScriptResult {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

export interface RunningScript {
  readonly process: ChildProcessByStdio<Writable, Readable, Readable>;
  /** The output up to now. */
  readonly output: { stdout: string; stderr: string };
  readonly ended: Promise<ScriptResult>;
}

/**
 * Starts a script of this project. Its environment has only `PATH`, `TEST_RUN` (see
 * guardian.ts) and the given variables.
 * @param redirection in the syntax of the shell, such as `>/dev/full`
 */
export function startScript(
  script: string,
  args: string[],
  environment: Record<string, string>,
  redirection?: string,
): RunningScript {
  const command = [...nodeOptions(buildOf(script)), script, ...args];
  return redirection === undefined
    ? startProgram(process.execPath, command, environment)
    : startProgram(
        'sh',
        ['-c', `exec "$0" "$@" ${redirection}`, process.execPath, ...command],
        environment,
      );
}

/**
 * Starts `npm` with the given arguments as the leader of a process group, like a shell with job
 * control does.
 */
export function startNpm(args: string[], environment: Record<string, string>): RunningScript {
  // npm neither reads the settings of the user nor asks the registry for a newer npm.
  const settings = { npm_config_userconfig: '/dev/null', npm_config_update_notifier: 'false' };
  return startProgram('npm', args, { ...settings, ...environment }, true);
}

/** Starts any program, with the environment of `startScript`. */
export function startProgram(
  program: string,
  args: string[],
  environment: Record<string, string>,
  detached = false,
): RunningScript {
  const child = spawn(program, args, {
    cwd: root,
    env: { PATH: process.env.PATH ?? '', TEST_RUN: process.env.TEST_RUN, ...environment },
    stdio: ['pipe', 'pipe', 'pipe'],
    detached,
  });
  const output = { stdout: '', stderr: '' };
  child.stdin.on('error', () => {}); // EPIPE: the script ended without reading its input
  child.stdout.setEncoding('utf8').on('data', text => (output.stdout += text));
  child.stderr.setEncoding('utf8').on('data', text => (output.stderr += text));
  const ended = new Promise<ScriptResult>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve({ code, signal, ...output }));
  });
  return { process: child, output, ended };
}

/** Runs a script of this project until it ends. */
export function runScript(
  script: string,
  args: string[],
  environment: Record<string, string>,
  input = '',
): Promise<ScriptResult> {
  const { process: child, ended } = startScript(script, args, environment);
  child.stdin.end(input);
  return ended;
}
