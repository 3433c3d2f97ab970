import { expect } from 'chai';
import { runCommand } from './run-command.ts';

type Environment = Readonly<Record<string, string>>;
export type Script = 'tenant' | 'control';

/**
 * Runs a command that must succeed.
 * @returns what it has printed on stdout
 */
export async function succeed(
  environment: Environment,
  script: Script,
  args: readonly string[],
  input = '',
): Promise<string> {
  const { code, stdout, stderr } = await runCommand(
    `scripts/${script}.ts`,
    args,
    environment,
    input,
  );
  expect(code, `${args.join(' ')}: ${stderr}${stdout}`).to.equal(0);
  return stdout;
}

/**
 * Makes the backup target one of an installation, and archives all tenants and the control
 * database.
 */
export async function backUp(environment: Environment): Promise<void> {
  await succeed(environment, 'tenant', ['backup', 'init']);
  await succeed(environment, 'tenant', ['backup', 'run', '--all']);
}

/** Returns the document that a command with `--json` has printed, or that of its error. */
export function documentOf({
  code,
  stdout,
  stderr,
}: {
  code: number | null;
  stdout: string;
  stderr: string;
}) {
  return {
    code,
    document: code === 0 ? JSON.parse(stdout) : JSON.parse(stderr.split('\n')[0] ?? '').error,
  };
}
