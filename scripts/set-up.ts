import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

// The commands that compose.yaml runs before each start of the service:
//   set-up.ts secrets <folder> <folder of the operator>
//     makes the secrets that are missing, before PostgreSQL starts
//   set-up.ts databases <folder>
//     brings the databases to this build
// No secret is ever replaced: without the master key, no tenant can be opened.

const [step, folder = '', operatorFolder = ''] = process.argv.slice(2);

if (step === 'secrets') {
  // Both have the password. The second one counts: a start that ends before it makes both anew.
  if (!existsSync(join(operatorFolder, 'postgres-password'))) {
    const password = randomBytes(24).toString('hex');
    const url = `postgresql://operator:${password}@/backoffice?host=/var/run/postgresql`;
    store(join(operatorFolder, 'database-url'), url);
    store(join(operatorFolder, 'postgres-password'), password);
  }
  if (!existsSync(join(folder, 'master-key'))) {
    store(join(folder, 'master-key'), randomBytes(32).toString('base64'));
  }
} else {
  const serviceUrl = join(folder, 'database-url');
  backoffice('control', 'migrate');
  if (!existsSync(serviceUrl)) {
    store(serviceUrl, backoffice('control', 'service-login', '--yes', '-o', 'url').trim());
  }
  backoffice('migrate', '--all');
}

/** Stores a secret as a whole: a start that is killed leaves no half of it. */
function store(path: string, secret: string): void {
  writeFileSync(`${path}.new`, secret, { mode: 0o400 });
  renameSync(`${path}.new`, path);
}

/**
 * Runs a command of operators, and ends this process if it fails.
 * @returns what it prints
 */
function backoffice(...args: string[]): string {
  const command = [...process.execArgv, 'scripts/backoffice.ts', ...args];
  const { status, stdout } = spawnSync(process.execPath, command, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (status !== 0) process.exit(status ?? 1);

  return stdout;
}
