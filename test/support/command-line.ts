import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));
/** Most of what a short command does is to compile the same modules again. */
const compileCache = join(tmpdir(), 'backoffice-test-compile-cache');

/** How a process ended, and what it said. */
export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

export interface Running {
  readonly process: ChildProcessByStdio<Writable, Readable, Readable>;
  /** What it has said up to now. */
  readonly output: { stdout: string; stderr: string };
  readonly ended: Promise<Ended>;
}

/** Starts one of our scripts with nothing of ours in its environment but what is given. */
export function start(script: string, args: string[], environment: Record<string, string>): Running {
  const child = spawn(process.execPath, [script, ...args], {
    cwd: root,
    env: { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE: compileCache, ...environment },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const output = { stdout: '', stderr: '' };
  child.stdin.on('error', () => {}); // it did not want its input
  child.stdout.setEncoding('utf8').on('data', text => (output.stdout += text));
  child.stderr.setEncoding('utf8').on('data', text => (output.stderr += text));
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve({ code, signal, ...output }));
  });
  return { process: child, output, ended };
}

/** Runs one of our scripts to its end. */
export function run(script: string, args: string[], environment: Record<string, string>, input = ''): Promise<Ended> {
  const { process: child, ended } = start(script, args, environment);
  child.stdin.end(input);
  return ended;
}
