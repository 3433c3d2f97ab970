import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import { createPlainServer } from '../../support/plain-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

describe('commands with another login in place of the one that has made the databases', () => {
  const server = use(() => createPlainServer('createdb createrole'));
  const far = use(() => createPlainServer('createdb createrole'));
  const archives = useServerFolder('archives');
  let environment: Record<string, string>;

  const tenant = (...args: string[]) => succeed(environment, 'tenant', args);
  const asSuccessor = (url: string): string =>
    Object.assign(new URL(url), { username: 'successor', password: 'secret' }).href;

  /** Runs the command of psql that a remedy has, as superuser of the server. */
  async function runRemedy(remedy: string, url: string): Promise<void> {
    const [command = ''] = /psql .*$/m.exec(remedy) ?? [];
    await promisify(execFile)('sh', ['-ec', command], {
      env: { PATH: process.env.PATH ?? '', DATABASE_URL: url },
    });
  }

  before(async () => {
    environment = {
      DATABASE_URL: server.url('backoffice'),
      MASTER_KEY: randomBytes(32).toString('base64'),
      ...(await backupSettings(archives)),
    };
    await succeed(environment, 'control', ['migrate']);
    await succeed(environment, 'tenant', ['server', 'add', 'far'], far.url('postgres'));
    for (const [slug, place] of [
      ['acme', 'default'],
      ['globex', 'default'],
      ['initech', 'far'],
    ] as const) {
      const args = ['--name', slug, '--admin-email', `a@${slug}.test`, '--server', place];
      await tenant('provision', slug, ...args);
    }
    await tenant('backup', 'init');
    await tenant('backup', 'run', '--all');
    await tenant('restore', 'globex', '--archive', 'latest');
  });

  it('every command works after exactly what doctor prints for operator_rights', async () => {
    for (const [each, database] of [
      [server, 'backoffice'],
      [far, 'postgres'],
    ] as const) {
      await each.sql(`create role successor login createdb createrole password 'secret';
                      grant connect on database postgres to successor`);
      await promisify(execFile)('psql', [
        each.superuserUrl(database),
        '-c',
        'reassign owned by operator to successor',
      ]);
    }
    environment = { ...environment, DATABASE_URL: asSuccessor(server.url('backoffice')) };
    await succeed(
      environment,
      'tenant',
      ['server', 'add', 'far'],
      asSuccessor(far.url('postgres')),
    );

    const before = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
    const findings: { check: string; server: string; remedy: string }[] = JSON.parse(
      before.stdout,
    ).findings;
    const rights = findings.filter(({ check }) => check === 'operator_rights');
    for (const { server: name, remedy } of rights) {
      const place =
        name === 'far' ? far.superuserUrl('postgres') : server.superuserUrl('backoffice');
      await runRemedy(remedy, place);
    }

    expect(rights.map(each => each.server).sort()).to.deep.equal(['default', 'far']);
    expect(rights.map(({ remedy }) => remedy).join()).to.include('grant "operator" to "successor"');
    for (const args of [
      ['migrate', '--all'],
      ['provision', 'umbrella', '--name', 'u', '--admin-email', 'a@u.test', '--server', 'default'],
      ['clone', 'acme', 'acme-copy'],
      ['move', 'acme', '--to', 'far', '--pause', '60'],
      ['move', 'initech', '--to', 'default', '--pause', '60'],
      ['backup', 'run', '--all'],
      ['backup', 'drill'],
      ['restore', 'swap', 'globex', '--yes'],
      ['restore', 'back', 'globex', '--yes'],
      ['restore', 'acme', '--archive', 'latest'],
      ['suspend', 'globex', '--yes'],
      ['delete', 'globex', '--yes'],
      ['purge', 'globex', '--yes'],
    ]) {
      await tenant(...args);
    }
    const after = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
    expect(after.stdout).to.not.include('operator_rights');
  });
});
