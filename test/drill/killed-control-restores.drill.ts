import { copyFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { addClient } from '../../src/operator/credentials/clients.ts';
import { controlSteps } from '../../src/operator/recovery/restore-control.ts';
import { backupSettings } from '../support/backup-settings.ts';
import { startScript } from '../support/command-line.ts';
import { createDedicatedServer, type DedicatedServer } from '../support/dedicated-server.ts';
import { eventually } from '../support/eventually.ts';
import { killedRestore } from '../support/paused-run.ts';
import { runCommand } from '../support/run-command.ts';
import { makeServerFolder } from '../support/server-folder.ts';

/**
 * Sessions, users, clients and keys that were ended before the loss: none may be there.
 */
const revived = (keys: readonly string[]): string => `
  select (select count(*)::int from sessions where revoked_at is null) as sessions,
         (select count(*)::int from users where email = 'nora@acme.test' and disabled_at is null) as users,
         (select count(*)::int from api_clients where revoked_at is null) as clients,
         (select count(*)::int from signing_keys where status <> 'disabled' and kid = any ('{${keys.join(',')}}')) as keys`;
const nothing = { sessions: 0, users: 0, clients: 0, keys: 0 };

describe('drill: killed restores of the control database', () => {
  let server: DedicatedServer;
  let folder: string;
  let environment: Record<string, string>;
  /**
   * An archive from before the revocations, and one from after them is in the target as well.
   */
  let first: string;
  let serviceUrl: string;
  let keys: string[];

  const run = async (script: 'tenant' | 'control', ...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await runCommand(
      `scripts/${script}.ts`,
      [...args, '--json'],
      environment,
    );
    expect(code, `${args.join(' ')}: ${stderr}${stdout}`).to.equal(0);
    return stdout;
  };

  before(async function () {
    this.timeout(120_000);

    server = await createDedicatedServer();
    folder = await makeServerFolder('archives');
    environment = { ...server.environment, ...(await backupSettings(folder)) };
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    serviceUrl = JSON.parse(await run('control', 'service-login')).databaseUrl;

    await run('tenant', 'user', 'add', 'acme', 'nora@acme.test', '--role', 'Member');
    await addClient(server.installation, 'acme', 'admin@acme.test', 'Old program');
    await server.control(
      `insert into sessions (tenant_id, user_id) select tenant_id, id from users`,
    );
    keys = (await server.control<{ kid: string }>('select kid from signing_keys')).map(
      ({ kid }) => kid,
    );

    await run('tenant', 'backup', 'init');
    await run('tenant', 'backup', 'run', '--all');
    [first = ''] = JSON.parse(await run('tenant', 'backup', 'list'))
      .filter(({ tenant }: { tenant: string | null }) => tenant === null)
      .map(({ name }: { name: string }) => name);

    await run('tenant', 'user', 'disable', 'acme', 'nora@acme.test', '--yes');
    await server.control('update api_clients set revoked_at = now()');
    await run('tenant', 'backup', 'run', '--all');
  });
  after(async () => {
    await server.close();
    await rm(folder, { recursive: true, force: true });
  });

  const exists = async (name: string): Promise<boolean> =>
    (await server.sql(`select from pg_database where datname = '${name}'`)).length === 1;
  const tenants = async (): Promise<number> =>
    (await exists('office'))
      ? ((
          await server
            .control<{ count: number }>('select count(*)::int from tenants')
            .catch(() => [])
        )[0]?.count ?? 0)
      : 0;

  /**
   * Starts the service.
   * @returns what it says when it ends by itself; undefined if it serves
   */
  async function startService(): Promise<string | undefined> {
    const ports = { PORT: '0', MANAGEMENT_PORT: '0', LOG_LEVEL: 'info', SHUTDOWN_DELAY: '0s' };
    const service = startScript('src/main.ts', [], {
      ...environment,
      DATABASE_URL: serviceUrl,
      ...ports,
    });
    const hasEnded = () => service.process.exitCode !== null;
    await eventually(() => hasEnded() || service.output.stdout.includes('"listening"'), 60_000);
    if (hasEnded()) return service.output.stderr;
    service.process.kill('SIGKILL');
    await service.ended;
    return undefined;
  }

  it('an older archive brings back nothing that a newer archive has as revoked', async () => {
    const restore = async (...args: string[]) =>
      JSON.parse((await run('control', 'restore', ...args)).split('\n')[0] ?? '');
    const list = async (): Promise<string[]> =>
      JSON.parse(await run('tenant', 'backup', 'list')).map(({ name }: { name: string }) => name);
    const names = await list();
    await server.sql('drop database office with (force)');

    const { replayed } = (await restore('--archive', first)).report;
    expect(replayed).to.deep.include({
      usersDisabled: 1,
      clientsRevoked: 1,
      tenantsStopped: [],
      tenantsPurged: [],
      tenantsRenamed: [],
    });
    expect((await server.control<object>(revived(keys)))[0]).to.deep.equal(nothing);
    expect(await list()).to.have.members(names);

    // A copy of the older archive with a newer name is no newer archive.
    await server.sql('drop database office with (force)');
    const copy = first.replace(/\d{8}T\d{6}\.\d{3}Z/, '29990101T000000.000Z');
    await copyFile(join(folder, first), join(folder, copy));
    expect((await restore()).source).not.to.be.oneOf([first, copy]);
    await rm(join(folder, copy));
    expect(await exists('office_restoring')).to.equal(false);
    expect(await exists('office_later')).to.equal(false);
  });

  for (const isEmptyThere of [false, true]) {
    for (const step of [...controlSteps, 'end']) {
      it(`a restore that is killed before the step ${step} revives nothing, and is ended by the same command${isEmptyThere ? ', in place of an empty control database' : ''}`, async function () {
        this.timeout(120_000);
        await server.sql('drop database if exists office with (force)');

        // With the target, an empty control database is not made beside the archives of a lost
        // one.
        const { BACKUP_TARGET: _, ...withoutTarget } = environment;
        if (isEmptyThere) {
          expect(
            (await runCommand('scripts/control.ts', ['migrate'], withoutTarget)).code,
          ).to.equal(0);
        }

        const killed = await startScript(killedRestore, ['control', first, step], environment)
          .ended;
        expect(killed.signal, killed.stderr).to.equal('SIGKILL');

        const isInPlace = (await tenants()) > 0;
        expect(isInPlace).to.equal(['grant rights', 'end'].includes(step));
        if (isInPlace) {
          expect((await server.control<object>(revived(keys)))[0]).to.deep.equal(nothing);
        }

        const reason = await startService();
        if (step === 'end') {
          expect(reason).to.equal(undefined);
        } else if (
          !isInPlace &&
          step !== controlSteps[0] &&
          isEmptyThere &&
          (await exists('office'))
        ) {
          expect(reason).to.match(/A restore of the control database has begun, and has not ended/);
        } else if (!(isEmptyThere && step === controlSteps[0])) {
          expect(reason).to.match(/^The control database .*\n$/);
        }

        const doctor = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
        if (isInPlace) {
          expect(doctor.stdout).to.include(`bin/backoffice control restore --archive ${first}`);
        } else if (step !== controlSteps[0]) {
          expect(doctor.stderr).to.include('A restore of the control database has begun');
          const added = await runCommand(
            'scripts/control.ts',
            ['migrate', '--json'],
            withoutTarget,
          );
          // at most an empty control database, which the restore replaces
          expect(added.code).to.be.oneOf([0, 1]);
        }

        await run('control', 'restore', '--archive', first);
        expect((await server.control<object>(revived(keys)))[0]).to.deep.equal(nothing);
        expect(await tenants()).to.equal(2);
        expect(await exists('office_restoring')).to.equal(false);
        expect(await exists('office_later')).to.equal(false);

        const { findings } = JSON.parse(await run('tenant', 'doctor'));
        expect(
          findings.filter(({ severity }: { severity: string }) => severity === 'error'),
        ).to.deep.equal([]);
        expect(await startService()).to.equal(undefined);
      });
    }
  }
});
