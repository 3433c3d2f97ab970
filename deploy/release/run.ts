import { spawnSync } from 'node:child_process';

/** A sentence for whoever makes a release: why there is none, and what to do. */
export class ReleaseError extends Error {}

/** Runs the work of a program, and ends it with the sentence of a `ReleaseError` and code 1. */
export async function reportFailure(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof ReleaseError)) throw error;
    console.error(error.message);
    process.exitCode = 1;
  }
}

/**
 * The environment, without what `npm run` adds: a further npm would take the folder and the
 * package of this one for its own.
 */
export const environment = Object.fromEntries(
  Object.entries(process.env).filter(
    ([name]) => !/^(npm_(package|lifecycle)_.*|npm_config_(local_)?prefix|INIT_CWD)$/.test(name),
  ),
);

/**
 * Runs a program until it ends.
 * @returns what it prints
 * @throws {ReleaseError} with the last lines that it printed, if it fails
 */
export function run(folder: string, program: string, ...args: string[]): string {
  const { status, stdout, stderr, error } = start(folder, program, args);
  if (status === 0) return stdout;

  const lines = error ? [error.message] : `${stdout}${stderr}`.trimEnd().split('\n').slice(-20);
  throw new ReleaseError(`${program} ${args.join(' ')} failed in ${folder}:\n${lines.join('\n')}`);
}

/**
 * Runs a program until it ends.
 * @returns what it prints; undefined if it fails
 */
export function tryRun(folder: string, program: string, ...args: string[]): string | undefined {
  const { status, stdout } = start(folder, program, args);
  return status === 0 ? stdout : undefined;
}

function start(folder: string, program: string, args: string[]) {
  return spawnSync(program, args, {
    cwd: folder,
    env: environment,
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}
