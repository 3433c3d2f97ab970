import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../src/control/server-urls.ts';
import { readConfig } from '../src/lib/config/config.ts';
import { nodeOptions, root, type ScriptResult } from './support/command-line.ts';
import { runCommand } from './support/run-command.ts';
import { postgresUrl } from './support/test-server.ts';
import { useWorld } from './support/world.ts';

const provision = ['provision', 'acme', '--name', 'Acme', '--admin-email', 'admin@acme.test'];

describe('failures that an operator can resolve', () => {
  const world = useWorld();

  function expectOneLine({ code, stdout, stderr }: ScriptResult, text: string): void {
    expect({ code, stdout, stderr }).to.deep.equal({ code: 1, stdout: '', stderr: `${text}\n` });
  }

  it('a command that needs data makes nothing in a DATA_DIR without data, and says where it has looked', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'backoffice-empty-'));
    const commands = [
      ['list'],
      ['doctor'],
      [...provision, '--dry-run'],
      ['delete', 'acme', '--yes'],
      ['suspend', 'acme', '--yes'],
      ['user', 'add', 'acme', 'nora@acme.test'],
      ['migrate', '--all'],
    ];

    for (const args of commands) {
      const text =
        `there are no data in ${folder}: set DATA_DIR or DATABASE_URL as for the service, or start the service ` +
        'first.';
      expectOneLine(await runCommand('scripts/tenant.ts', args, { DATA_DIR: folder }), text);
      expect(await readdir(folder)).to.deep.equal([]);
    }
    await rm(folder, { recursive: true });
  });

  it('a relative path in a setting begins in the folder of the project, wherever a command is started', async () => {
    const { dataDir, backup } = readConfig({
      DATA_DIR: 'data',
      BACKUP_IDENTITY_FILE: 'identity.txt',
    });
    expect(dataDir).to.equal(join(root, 'data'));
    expect(backup.identityFile).to.equal(join(root, 'identity.txt'));

    const args = [...nodeOptions(), join(root, 'scripts/backoffice.ts'), 'list'];
    const elsewhere = spawnSync(process.execPath, args, {
      cwd: tmpdir(),
      env: { PATH: process.env.PATH, DATA_DIR: 'no-such-data' },
      encoding: 'utf8',
    });
    expect(elsewhere.stderr).to.include(`there are no data in ${join(root, 'no-such-data')}: `);
  });

  it('a byte order mark before the first name in an .env file does not hide the setting', () => {
    expect(readConfig({ '\uFEFFPORT': '4711' }).port).to.equal(4711);
  });

  it('a DATA_DIR that cannot be written is named by the service and by the command line', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'backoffice-file-'));
    const file = join(folder, 'file');
    await writeFile(file, '');
    const text =
      'DATA_DIR cannot be written (ENOTDIR): set it to a folder that this login may write, or set DATABASE_URL.';

    expectOneLine(await runCommand('src/main.ts', [], { DATA_DIR: join(file, 'data') }), text);
    expectOneLine(
      await runCommand('scripts/tenant.ts', provision, { DATA_DIR: join(file, 'data') }),
      text,
    );

    await rm(folder, { recursive: true });
  });

  it('a DATA_DIR in /proc, where no folder can be created, is named, and not tried for ever', async function () {
    if (process.platform !== 'linux') return this.skip();
    const text =
      'DATA_DIR cannot be written (ENOENT): set it to a folder that this login may write, or set DATABASE_URL.';
    for (const folder of ['/proc/backoffice', '/proc/backoffice/data']) {
      expectOneLine(await runCommand('scripts/tenant.ts', provision, { DATA_DIR: folder }), text);
    }
  });

  it('a DATA_DIR of another major version of PostgreSQL is refused with both versions and the way, and nothing in it changes', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'backoffice-version-'));
    const data = join(folder, 'postgres');
    await mkdir(data, { mode: 0o700 });
    await writeFile(join(data, 'PG_VERSION'), '17\n');
    await writeFile(join(data, 'superuser.password'), 'secret-word', { mode: 0o600 });
    await writeFile(join(folder, 'master.key'), randomBytes(32).toString('base64'));
    const text =
      `${data} has data of PostgreSQL 17, and this build has PostgreSQL 18, which cannot read them: start a build with ` +
      'PostgreSQL 17, bring the data to 18 by pg_upgrade (docs/operate/upgrades.md, Upgrade PostgreSQL), or set DATA_DIR ' +
      'to another folder to begin anew.';

    for (const [script, args] of [
      ['src/main.ts', []],
      ['scripts/tenant.ts', ['list']],
    ] as const) {
      expectOneLine(await runCommand(script, [...args], { DATA_DIR: folder }), text);
    }

    expect((await readdir(folder)).sort()).to.deep.equal(['master.key', 'postgres']);
    expect((await readdir(data)).sort()).to.deep.equal(['PG_VERSION', 'superuser.password']);
    await rm(folder, { recursive: true });
  });

  it('a HOST or MANAGEMENT_HOST that is not an address of the machine is reported by name, and the port is not', async () => {
    const remedy = 'to an address of this machine, or to 0.0.0.0 for all of them.';
    for (const prefix of ['', 'MANAGEMENT_']) {
      const settings = { ...world.environment, [`${prefix}HOST`]: '192.0.2.1', LOG_LEVEL: 'error' };
      const result = await runCommand('src/main.ts', [], settings);
      const text = `192.0.2.1 is not an address that this process can listen on (EADDRNOTAVAIL): set ${prefix}HOST`;
      expectOneLine(result, `${text} ${remedy}`);
    }
  });

  it('a control database that does not exist is refused with the command that creates it', async () => {
    const missing = databaseUrl(postgresUrl(), `missing_${randomBytes(5).toString('hex')}`);
    const environment = { ...world.environment, DATABASE_URL: missing };
    const text =
      'The control database that DATABASE_URL names does not exist. Create it: bin/backoffice control migrate';
    expectOneLine(await runCommand('src/main.ts', [], environment), text);
    expectOneLine(await runCommand('scripts/tenant.ts', ['list'], environment), text);
  });

  it('a build uses a control database that a later build has migrated, if all later migrations are compatible', async () => {
    const environment = world.environment;
    const { em } = world.control;

    try {
      await em
        .fork()
        .execute(`insert into migrations (name, compatible) values ('9998-later', true)`);
      expect((await runCommand('scripts/tenant.ts', ['list'], environment)).code).to.equal(0);

      await em
        .fork()
        .execute(`insert into migrations (name, compatible) values ('9999-later', false)`);
      expectOneLine(
        await runCommand('scripts/tenant.ts', ['list'], environment),
        'The control database is at version 9999-later, of a later build: use that build.',
      );
    } finally {
      await em.fork().execute(`delete from migrations where name > '9'`);
    }
  });

  it('a wrong password of the control database names DATABASE_URL and a command that tests it', async () => {
    const url = new URL(world.installation.controlUrl);
    url.password = 'secret-word';

    expectOneLine(
      await runCommand('scripts/tenant.ts', ['list'], {
        ...world.environment,
        DATABASE_URL: url.href,
      }),
      'The control database cannot be used: the password is wrong, or its time has ended (valid until). ' +
        'Correct the password in DATABASE_URL, or let a superuser extend its time (alter role, valid until). ' +
        `Then test it: psql "$DATABASE_URL" -c 'select 1'`,
    );
  });

  it('server add with a wrong password names the server, and not DATABASE_URL', async () => {
    const url = new URL(postgresUrl());
    url.password = 'secret-word';

    expectOneLine(
      await runCommand(
        'scripts/tenant.ts',
        ['server', 'add', 'second'],
        world.environment,
        url.href,
      ),
      'The server second cannot be used: the password is wrong, or its time has ended (valid until). ' +
        'Correct the password in its URL, or let a superuser extend its time (alter role, valid until). Then run again: bin/backoffice server add second',
    );
  });
});
