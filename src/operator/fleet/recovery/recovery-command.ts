import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { normalPostgresUrl, PostgresUrlError } from '../../../lib/config/postgres-url.ts';
import { environment } from '../../../lib/config/process-environment.ts';
import { secretVariables } from '../../../lib/config/secret-files.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { errorText } from '../../command/texts.ts';

/**
 * Runs `RECOVERY_COMMAND` with arguments that no shell reads, and `work` on the server whose
 * URL it prints. Then, or when this process ends, however that ends, the standard input of the
 * command closes, and the command cleans up.
 * @param command path of the program
 * @throws {OperatorError} with the sentence that the command has printed in place of a URL
 */
export async function withRecoveryCommand<T>(
  command: string,
  args: readonly [server: string, database: string, time: string],
  work: (url: string) => Promise<T>,
): Promise<T> {
  const running = start(command, args);
  try {
    const line = await Promise.race([running.firstLine, running.exited.then(() => '')]);
    const url = serverUrlIn(line);
    if (url === undefined) {
      running.child.stdin?.end();
      await running.ended;
      throw running.refusal();
    }
    return await work(url);
  } finally {
    running.child.stdin?.end();
    await running.ended;
  }
}

/**
 * Runs `RECOVERY_COMMAND --list <server>`.
 * @returns the lines that it prints
 * @throws {OperatorError} when it fails
 */
export async function listMoments(command: string, server: string): Promise<string[]> {
  const running = start(command, ['--list', server]);
  running.child.stdin?.end();
  await running.ended;
  if (running.child.exitCode !== 0) throw running.refusal();
  return running.output().trim().split('\n').filter(Boolean);
}

interface Running {
  readonly child: ChildProcess;
  readonly firstLine: Promise<string>;
  /** Resolves when the command itself has ended, or could not be run. */
  readonly exited: Promise<unknown>;
  /**
   * Resolves when the command has ended, and with it every program that it has started and
   * whose output this process reads.
   */
  readonly ended: Promise<unknown>;
  output(): string;
  /** Returns the error of the command, with its reason, but without any URL. */
  refusal(): OperatorError;
}

const maxOutput = 10_000;

function start(command: string, args: readonly string[]): Running {
  // In a process group of its own: Ctrl-C in a terminal ends this process, and the command then
  // cleans up.
  const child = spawn(command, args, { stdio: 'pipe', detached: true, env: withoutSecrets() });

  const texts = { stdout: '', stderr: '' };
  let failure: unknown;

  const { promise: firstLine, resolve } = Promise.withResolvers<string>();

  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (text: string) => {
      texts[name] = (texts[name] + text).slice(-maxOutput);
      if (name === 'stdout' && texts.stdout.includes('\n')) {
        resolve(texts.stdout.split('\n')[0]?.trim() ?? '');
      }
    });
  }

  child.stdin.on('error', () => {}); // it has ended
  child.on('error', error => {
    failure = error;
  });

  const outcome = (): string => {
    if (failure) return `${command} cannot be run (${errorText(failure)})`;
    const text = errorText(texts.stdout) || errorText(texts.stderr.trim().split('\n').at(-1) ?? '');
    return (
      text ||
      `${command} has printed no URL, and has ended with ${child.signalCode ?? `code ${child.exitCode}`}`
    );
  };

  return {
    child,
    firstLine,
    exited: once(child, 'exit').catch(() => {}),
    ended: once(child, 'close').catch(() => {}),
    output: () => texts.stdout,
    refusal: () => new OperatorError(`RECOVERY_COMMAND: ${outcome()}`.replace(/\.$/, '')),
  };
}

/**
 * Returns the URL that a line consists of; undefined for every other line, such as a sentence.
 * The folder of a socket in it may have a space.
 */
function serverUrlIn(line: string): string | undefined {
  try {
    return normalPostgresUrl(line.replaceAll(' ', '%20'));
  } catch (error) {
    if (!(error instanceof PostgresUrlError)) throw error;
    return undefined;
  }
}

/** The environment of this process without the secrets of the installation. */
function withoutSecrets(): NodeJS.ProcessEnv {
  const own: readonly string[] = secretVariables.filter(name => !name.startsWith('AWS_'));
  return Object.fromEntries(
    Object.entries(environment()).filter(([name]) => !own.includes(name.replace(/_FILE$/, ''))),
  );
}
