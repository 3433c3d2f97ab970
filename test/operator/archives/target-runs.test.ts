import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { readConfig } from '../../../src/config/config.ts';
import type { BackupOutcome } from '../../../src/operator/archives/backup-effects.ts';
import { runBackup } from '../../../src/operator/archives/run-backup.ts';
import { openTarget } from '../../../src/operator/archives/targets/open-target.ts';
import { jsonLines } from '../../support/json-lines.ts';
import { runCommand } from '../../support/run-command.ts';
import { startS3Server } from '../../support/s3-server.ts';
import { use } from '../../support/use.ts';
import { sql, useWorld } from '../../support/world.ts';

describe('backup runs and their target', () => {
  const s3 = use(() => startS3Server('backups', 2));
  const world = useWorld();
  let environment: Record<string, string>;

  const backup = (...args: string[]) => runCommand('scripts/tenant.ts', ['backup', ...args, '--json'], environment);

  before(async () => {
    environment = { ...world.environment, ...s3.environment };
    expect((await runCommand('scripts/tenant.ts', ['backup', 'init'], environment)).code).to.equal(0);
  });

  it('a run archives every tenant to a bucket, and verify reads every byte of it back', async () => {
    const { code, stdout, stderr } = await backup('run', '--all');
    expect(code, stderr).to.equal(0);
    expect(states(stdout)).to.have.deep.members(['acme: archived', 'globex: archived', 'null: archived']);
    const verified = await backup('verify');
    expect(verified.code, verified.stderr).to.equal(0);
  });

  it('a folder in the place of an old archive is left alone, and fails only the run that finds it', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'target-'));
    const run = (...args: string[]) =>
      runCommand('scripts/tenant.ts', ['backup', ...args], { ...environment, BACKUP_TARGET: folder });
    await run('init');
    await run('run', '--all');
    const [archive = ''] = await readdir(join(folder, 'control'));
    await rm(join(folder, 'control', archive));
    await mkdir(join(folder, 'control', archive));
    const { code, stdout, stderr } = await run('run', '--all');
    expect([code, stderr]).to.deep.equal([1, '']);
    expect(stdout).to.include('1 old archive removed').and.include(`has lost 1 archive: control/${archive}`);
    expect((await run('run', '--all')).code).to.equal(0);
    expect(await readdir(join(folder, 'control')))
      .to.include(archive)
      .and.have.length(2);
    await rm(folder, { recursive: true });
  });

  it('a run whose bucket falls silent ends, names the calls, and keeps no later run waiting', async () => {
    for (const tenant of [world.acme, world.globex])
      await sql(tenant, `insert into currencies (code, name) values ('USD', 'Dollar')`);
    const config = readConfig(environment);
    const target = openTarget(config.backup, { maxSilenceMs: 2_000, retryMs: 1 });
    let isSilent = false;
    s3.faultOf = request => {
      isSilent ||= /^PUT .*\/tenants\//.test(request);
      return isSilent ? { kind: 'silent' } : undefined;
    };
    const outcomes: BackupOutcome[] = [];
    const request = { slugs: undefined, concurrency: 1, keep: config.backup.keep };
    await runBackup(world.installation, target, request, { onOutcome: outcome => outcomes.push(outcome) });
    const errors = outcomes.map(({ slug, error }) => `${slug}: ${error}`.replace(/(tenants|control)\/\S+/, 'FILE'));
    const [first, second] = outcomes.map(({ slug }) => slug);
    const [description, remedy] = [
      's3://backups/some/prefix',
      'Check AWS_ENDPOINT_URL and the network, then try again',
    ];
    expect(errors).to.deep.equal([
      `${first}: ${description} was silent for 2 s: write FILE ${remedy}`,
      `${second}: ${description} does not respond, so this was not tried: write FILE ${remedy}`,
      `null: ${description} does not respond, so this was not tried: write FILE ${remedy}`,
    ]);
    s3.faultOf = () => undefined;
    const { code, stdout, stderr } = await backup('run', '--all');
    expect(code, stderr).to.equal(0);
    expect(states(stdout)).to.have.deep.members(['acme: archived', 'globex: archived', 'null: archived']);
  });

  it('a file that an archive has left, and that could not be removed, is removed by the next run', async () => {
    await sql(world.acme, `insert into currencies (code, name) values ('CHF', 'Franc')`);
    const files = () => [...s3.store.objects.keys()].filter(name => name.includes(`tenants/${world.acme.guid}/`));
    const before = files();
    // The store keeps the file, and its answer is lost.
    s3.faultOf = request => {
      if (!request.includes(`/tenants/${world.acme.guid}/`)) return undefined;
      if (request.startsWith('PUT')) return { kind: 'no answer' };
      return request.startsWith('DELETE') ? { kind: 'status', status: 403, code: 'AccessDenied' } : undefined;
    };
    const failed = await backup('run', '--all');
    s3.faultOf = () => undefined;
    expect(states(failed.stdout)).to.include('acme: failed');
    const [left = ''] = files().filter(name => !before.includes(name));
    expect(left).to.match(/\.archive$/);
    const { code, stderr } = await backup('run', '--all');
    expect(code, stderr).to.equal(0);
    expect(files()).not.to.include(left);
  });
});

function states(stdout: string): string[] {
  const outcomes: { slug: string | null; state: string }[] = jsonLines(stdout);
  return outcomes.filter(({ state }) => state).map(({ slug, state }) => `${slug}: ${state}`);
}
