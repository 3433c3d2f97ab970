import { execFile } from 'node:child_process';
import { chmod, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { withRecoveryCommand } from '../../src/operator/restore/recovered/recovery-command.ts';
import { makeServerFolder } from '../support/server-folder.ts';

const run = promisify(execFile);
const script = (name: string): string => fileURLToPath(new URL(`../../deploy/recovery/${name}`, import.meta.url));
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
  async function calls(): Promise<string> {
    const text = await readFile(join(folder, 'calls'), 'utf8');
    await rm(join(folder, 'calls'));
    return text;
  }

  it('pgbackrest.sh restores one database to the time, serves it on a socket, and removes it afterwards', async () => {
    await standIn('pgbackrest', ':');
    await standIn('pg_ctl', 'case "$*" in *start) echo "ready" > "$2/postmaster.pid" ;; esac');
    const url = await withRecoveryCommand(script('pgbackrest.sh'), ['second', 'office_tenant_7', time], async given => {
      expect(await readdir(join(folder, 'scratch'))).to.have.length(1);
      return given;
    });
    expect(url).to.match(/^postgresql:\/\/\/postgres\?host=.*\/scratch\/recovery-\w+&user=postgres$/);
    const made = await calls();
    expect(made).to.match(/^pgbackrest --stanza=second --pg1-path=\S+\/data --type=time /);
    expect(made).to.include(`--target=${time} --target-action=promote --db-include=office_tenant_7 --archive-mode=off`);
    expect(made).to.match(/pg_ctl -D \S+ -l \S+ -o .*-c archive_mode=off .*-c listen_addresses= .* start\n/s);
    expect(made).to.match(/pg_ctl -D \S+ -m immediate stop\n$/);
    expect(await readdir(join(folder, 'scratch'))).to.deep.equal([]);
  });

  it('pgbackrest.sh says why a restore fails', async () => {
    await standIn('pgbackrest', 'echo "ERROR: [075]: unable to find backup set"; exit 75');
    await standIn('pg_ctl', ':');
    const error = await withRecoveryCommand(script('pgbackrest.sh'), ['second', 'x', time], async () => {}).catch(
      (reason: Error) => reason.message,
    );
    expect(error).to.equal(
      'RECOVERY_COMMAND: pgBackRest could not restore stanza second: ERROR: [075]: unable to find backup set',
    );
    expect(await readdir(join(folder, 'scratch'))).to.deep.equal([]);
    await calls();
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
    const url = await withRecoveryCommand(script('cloudnativepg.sh'), ['default', 'x', time], async given => given);
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
    expect(await calls()).to.include('serverRecoveryWindow.backoffice-second.firstRecoverabilityPoint');
    await standIn('kubectl', ':');
    const failed = await run(script('cloudnativepg.sh'), ['--list', 'second']).catch(error => error);
    expect([failed.code, failed.stdout]).to.deep.equal([1, 'The object store has no backup of backoffice-second.\n']);
  });
});
