import { execFile } from 'node:child_process';
import {
  access,
  chmod,
  constants,
  mkdir,
  readdir,
  readFile,
  rm,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { withRecoveryCommand } from '../../src/operator/fleet/recovery/recovery-command.ts';
import { makeServerFolder } from '../support/server-folder.ts';
import { readDeploy } from './read-deploy.ts';

const run = promisify(execFile);
const script = (name: string): string =>
  fileURLToPath(new URL(`../../deploy/recovery/${name}`, import.meta.url));
const time = '2026-11-21 14:05:00.250000+00';

describe('commands of deploy/recovery, with stand-ins for the programs that they call', () => {
  let folder: string;
  let path: string | undefined;

  before(async () => {
    folder = await makeServerFolder('recovery');
    path = process.env.PATH;
    process.env.PATH = `${folder}:${path}`;
    process.env.RECOVERY_SCRATCH = join(folder, 'scratch');
    process.env.CALLS = join(folder, 'calls');
    await mkdir(process.env.RECOVERY_SCRATCH);
  });
  after(async () => {
    process.env.PATH = path;
    for (const name of ['RECOVERY_SCRATCH', 'CALLS']) delete process.env[name];
    await rm(folder, { recursive: true, force: true });
  });

  /** Makes a program that records its arguments, one call a line. */
  async function standIn(name: string, commands: string): Promise<void> {
    await writeFile(join(folder, name), `#!/bin/sh\necho "${name} $*" >> "$CALLS"\n${commands}\n`);
    await chmod(join(folder, name), 0o755);
  }
  afterEach(() => rm(join(folder, 'calls'), { force: true }));
  async function calls(): Promise<string> {
    const text = await readFile(join(folder, 'calls'), 'utf8');
    await rm(join(folder, 'calls'));
    return text;
  }

  it('pgbackrest.sh restores one database to the time, serves it on a socket, and removes it afterwards', async () => {
    await standIn('pgbackrest', ':');
    await standIn('pg_ctl', 'case "$*" in *start) echo "ready" > "$2/postmaster.pid" ;; esac');

    const url = await withRecoveryCommand(
      script('pgbackrest.sh'),
      ['second', 'office_tenant_7', time],
      async given => {
        expect(await readdir(join(folder, 'scratch'))).to.have.length(1);
        return given;
      },
    );

    expect(url).to.match(
      /^postgresql:\/\/\/postgres\?host=.*\/scratch\/recovery-\w+&user=postgres$/,
    );
    const made = await calls();
    expect(made).to.match(/^pgbackrest --stanza=second --pg1-path=\S+\/data --type=time /);
    expect(made).to.include(
      `--target=${time} --target-action=promote --db-include=office_tenant_7 --archive-mode=off`,
    );
    expect(made).to.match(
      /pg_ctl -D \S+ -l \S+ -o .*-c archive_mode=off .*-c listen_addresses= .* start\n/s,
    );
    expect(made).to.match(/pg_ctl -D \S+ -m immediate stop\n$/);
    expect(await readdir(join(folder, 'scratch'))).to.deep.equal([]);
  });

  it('a recovered server listens on the addresses of RECOVERY_LISTEN, with TLS and the passwords of the server', async () => {
    await standIn('pgbackrest', ':');
    await standIn('pg_ctl', 'case "$*" in *start) echo "ready" > "$2/postmaster.pid" ;; esac');
    const settings = {
      RECOVERY_LISTEN: '0.0.0.0',
      RECOVERY_TLS_CERTIFICATE: '/certificate',
      RECOVERY_TLS_KEY: '/key',
    };
    Object.assign(process.env, settings);

    await withRecoveryCommand(
      script('pgbackrest.sh'),
      ['second', 'office_tenant_7', time],
      async () => {
        const [name = ''] = await readdir(join(folder, 'scratch'));
        const rules = await readFile(join(folder, 'scratch', name, 'data/pg_hba.conf'), 'utf8');
        expect(rules).to.equal('local all all trust\nhostssl all all all scram-sha-256\n');
      },
    ).finally(() => {
      for (const name of Object.keys(settings)) delete process.env[name];
    });

    expect(await calls()).to.include(
      ' -c ssl=on -c ssl_cert_file=/certificate -c ssl_key_file=/key -c listen_addresses=0.0.0.0 ',
    );
  });

  it('pgbackrest.sh says why a restore fails', async () => {
    await standIn('pgbackrest', 'echo "ERROR: [075]: unable to find backup set"; exit 75');
    await standIn('pg_ctl', ':');

    const error = await withRecoveryCommand(
      script('pgbackrest.sh'),
      ['second', 'x', time],
      async () => {},
    ).catch((reason: Error) => reason.message);

    expect(error).to.equal(
      'RECOVERY_COMMAND: pgBackRest could not restore stanza second: ERROR: [075]: unable to find backup set',
    );
    expect(await readdir(join(folder, 'scratch'))).to.deep.equal([]);
  });

  it('cloudnativepg.sh recovers a second cluster to the time, forwards its port, and deletes it afterwards', async () => {
    await standIn(
      'kubectl',
      `case "$1" in
         create) cat > "${join(folder, 'manifest')}" ;;
         get) printf c2VjcmV0 ;;
         port-forward) echo 'Forwarding from 127.0.0.1:40001 -> 5432'; exec sleep 600 ;;
       esac`,
    );

    const url = await withRecoveryCommand(
      script('cloudnativepg.sh'),
      ['default', 'x', time],
      async given => given,
    );
    expect(url).to.equal('postgresql://postgres:secret@127.0.0.1:40001/postgres');

    const manifest = await readFile(join(folder, 'manifest'), 'utf8');
    expect(manifest).to.include(`recoveryTarget: { targetTime: "${time}" }`);
    expect(manifest).to.include('serverName: backoffice-control');

    const made = await calls();
    const name = /wait --for=condition=Ready cluster\/(\S+)/.exec(made)?.[1];
    expect(made).to.include(`kubectl delete cluster ${name} --ignore-not-found`);
    expect(made).not.to.include('secret@');
  });

  it('cloudnativepg.sh lists from the first point of the object store on, and says when there is none', async () => {
    await standIn('kubectl', 'printf 2026-11-20T00:00:00Z');
    const { stdout } = await run(script('cloudnativepg.sh'), ['--list', 'second']);
    expect(stdout).to.match(/^2026-11-20T00:00:00Z \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n$/);
    expect(await calls()).to.include(
      'serverRecoveryWindow.backoffice-second.firstRecoverabilityPoint',
    );

    await standIn('kubectl', ':');
    const failed = await run(script('cloudnativepg.sh'), ['--list', 'second']).catch(
      error => error,
    );
    expect(failed.code).to.equal(1);
    expect(failed.stdout).to.equal('The object store has no backup of backoffice-second.\n');
  });

  it('host-archive.sh archives a file once, accepts the same file again, and refuses another one of its name', async () => {
    const [wal, segment] = [join(folder, 'default/wal'), join(folder, 'segment')];
    await mkdir(wal, { recursive: true });

    const archive = () =>
      run(script('host-archive.sh'), ['default', segment, '000000010000000000000001'], {
        env: { ...process.env, RECOVERY_DIR: folder },
      });

    await writeFile(join(wal, '.000000010000000000000001'), 'a part, from before a crash');
    for (const content of ['first', 'first']) {
      await writeFile(segment, content);
      await archive();
    }

    await writeFile(segment, 'other');
    expect((await archive().catch(error => error)).code).to.equal(1);

    expect(await readdir(wal)).to.deep.equal(['000000010000000000000001']);
    expect(await readFile(join(wal, '000000010000000000000001'), 'utf8')).to.equal('first');
  });

  it('container-base-backups.sh makes a base backup as the login of the server, unless there is one of this day', async () => {
    await writeFile(join(folder, 'password'), 'secret');
    for (const name of ['chown', 'gosu']) await standIn(name, ':');
    await standIn('sleep', 'exit 1'); // ends the loop

    const environment = {
      RECOVERY_DIR: folder,
      RECOVERY_SERVER: 'second',
      POSTGRES_USER: 'operator',
    };
    const file = { POSTGRES_PASSWORD_FILE: join(folder, 'password') };
    const backUp = () =>
      run(script('container-base-backups.sh'), [], {
        env: { ...process.env, ...environment, ...file },
      }).catch(() => {});

    const given = `chown postgres:postgres ${folder}\n`;
    const made = `gosu postgres ${script('host-base-backup.sh')} second\n`;

    await backUp();
    expect(await calls()).to.equal(`${given}${made}sleep 600\n`);

    await mkdir(join(folder, 'second/base/unfinished'), { recursive: true });
    const latest = join(folder, 'second/base/2026-11-21T14:05:00.000000Z');
    await mkdir(latest);
    await backUp();
    expect(await calls()).to.equal(`${given}sleep 600\n`);

    await utimes(latest, new Date(), Date.now() / 1_000 - 90_000);
    await backUp();
    expect(await calls()).to.equal(`${given}${made}sleep 600\n`);
  });

  it('the unit and the settings for a host call programs that can be run', async () => {
    const [unit, settings] = await Promise.all(
      ['backoffice-base-backup@.service', 'archive.conf'].map(name =>
        readDeploy(`base-backup/${name}`),
      ),
    );

    const called = [
      ...`${unit}${settings}`.matchAll(/\/opt\/backoffice\/deploy\/recovery\/(\S+)/g),
    ].map(match => match[1]);
    expect(called).to.deep.equal(['host-base-backup.sh', 'host-archive.sh']);
    for (const name of called) await access(script(name ?? ''), constants.X_OK);
  });
});
