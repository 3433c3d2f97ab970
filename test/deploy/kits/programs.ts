import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile } from 'node:fs/promises';
import { join } from 'node:path';
import { nodeOptions, root } from '../../support/command-line.ts';

// What the stand-in of kubectl does with the programs of this machine. It is a process of its
// own, as kubectl is.

/**
 * The folder that stands for the root of the machine, and a variable that the test gives to
 * the stand-in.
 */
export const scratch = variable('KIT_SCRATCH');

export function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) {
    throw new Error(`${name} is not set: a stand-in runs in kits.drill.ts only`);
  }
  return value;
}

/** Adds a line to the log of what the stand-in did. */
export function note(text: string): Promise<void> {
  return appendFile(join(scratch, 'calls'), `${text}\n`);
}

/** Ends the process as a program does that cannot do its work. */
export function fail(reason: string): never {
  process.stderr.write(`${reason}\n`);
  process.exit(1);
}

type Variables = Readonly<Record<string, string>>;

/**
 * Runs a program of the image to its end, with the given variables and no others. Its streams
 * are those of the stand-in.
 * @param args as the entry point of the image takes them
 */
export async function runInImage(args: readonly string[], variables: Variables): Promise<void> {
  const [code] = await once(start(args, variables, 'inherit'), 'exit');
  if (code !== 0) process.exit(code ?? 1);
}

/** Starts the service, waits until it listens, and stops it. Its log lines are noted. */
export async function tryService(args: readonly string[], variables: Variables): Promise<void> {
  const free = { ...variables, PORT: '0', MANAGEMENT_PORT: '0' };
  const service = start(args, free, 'pipe');
  let log = '';
  for (const stream of [service.stdout, service.stderr]) {
    stream?.setEncoding('utf8').on('data', text => {
      log += text;
      if (log.includes('"event":"listening"')) service.kill('SIGINT');
    });
  }
  await once(service, 'close');
  await note(`service: ${log}`);
  if (!log.includes('"event":"listening"')) fail(`The service did not start:\n${log}`);
}

function start(
  args: readonly string[],
  variables: Variables,
  output: 'inherit' | 'pipe',
): ChildProcess {
  const network = {
    NODE_OPTIONS: `--import ${join(import.meta.dirname, 'network.ts')}`,
    KIT_NETWORK: variable('KIT_NETWORK'),
  };
  return spawn(process.execPath, [...nodeOptions(), ...args], {
    cwd: root,
    env: { PATH: process.env.PATH, TEST_RUN: process.env.TEST_RUN, ...network, ...variables },
    stdio: output === 'inherit' ? 'inherit' : ['ignore', 'pipe', 'pipe'],
  });
}
