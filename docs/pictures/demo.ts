import { execFile, spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

export const root = fileURLToPath(new URL('../..', import.meta.url));

/** The demo of `npm start`, on an embedded PostgreSQL in a temporary folder. */
export interface Demo {
  /** The environment variables of its commands. */
  readonly environment: NodeJS.ProcessEnv;
  /**
   * Runs a line in a shell.
   * @returns what it printed
   */
  type(line: string): Promise<string>;
  stop(): Promise<void>;
}

export async function startDemo(columns: number): Promise<Demo> {
  const folder = await mkdtemp(join(tmpdir(), 'backoffice-picture-'));
  const archives = join(folder, 'archives');
  await mkdir(archives);
  const environment = {
    ...process.env,
    DATA_DIR: join(folder, 'data'),
    BACKUP_TARGET: archives,
    COLUMNS: String(columns),
    PORT: '0',
    MANAGEMENT_PORT: '0',
  };
  const service = spawn('npm', ['start'], {
    cwd: root,
    env: environment,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise(resolve => service.once('exit', resolve));
  await new Promise<void>((resolve, reject) => {
    service.stdout.on('data', text => String(text).includes('Demo user') && resolve());
    service.once('exit', code => reject(new Error(`npm start ended with ${code}`)));
  });
  return {
    environment,
    type: async line => {
      process.stderr.write(`${line}\n`);
      const options = { cwd: root, env: environment };
      const { stdout, stderr } = await promisify(execFile)('bash', ['-c', line], options);
      return stderr + stdout;
    },
    stop: async () => {
      service.kill('SIGINT');
      await ended;
      await rm(folder, { recursive: true, force: true });
    },
  };
}
