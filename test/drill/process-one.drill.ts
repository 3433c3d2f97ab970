import { spawnSync } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { runCommand } from '../support/run-command.ts';
import { makeServerFolder } from '../support/server-folder.ts';
import { guardProcesses, stopCommand } from '../support/stopped-command.ts';
import { controlSql, createWorld, type World } from '../support/world.ts';

const path = '/api/v1/EntityStatus';
/** Runs a program as process 1 of a namespace, as a container does: with it, the kernel kills all other processes. */
const launcher = ['unshare', '--pid', '--fork', '--mount-proc'] as const;

describe('drill: a command that is process 1 of its container', () => {
  let world: World;
  let folder: string;
  let more: Record<string, string>;
  let acme: Client;

  before(async function () {
    const [program, ...args] = launcher;
    if (spawnSync(program, [...args, 'true']).status !== 0) {
      console.log('      unshare cannot make a namespace for processes here: what needs one is not tested');
      return this.skip();
    }
    folder = await makeServerFolder('archives');
    world = await createWorld({ ACQUIRE_TIMEOUT_MS: '2000' });
    more = { BACKUP_TARGET: folder };
    acme = await world.login(world.acme);
    await acme.post(path, { Title: 'archived' });
    await run('backup', 'init');
    await run('backup', 'run', '--all');
    await acme.post(path, { Title: 'later' });
    await run('restore', 'acme', '--archive', 'latest');
  });
  after(async () => {
    await world?.close();
    if (folder) await rm(folder, { recursive: true, force: true });
  });

  async function run(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', args, { ...world.environment, ...more });
    expect(code, stderr + stdout).to.equal(0);
    return stdout;
  }
  const titles = async (): Promise<string[]> => {
    const { status, body } = await acme.get(path, { 'Cache-Control': 'no-cache' });
    return status === 200 ? body.map(({ Title }: { Title: string }) => Title) : [`status ${status}`];
  };
  const ownGuards = async (): Promise<number[]> =>
    (await guardProcesses())
      .filter(({ environment }) => environment.includes(`${world.environment.DATABASE_URL}\0`))
      .map(({ pid }) => pid);
  const fences = () => controlSql<{ closed: boolean }>(world, 'select closed from tenant_fences');

  it('a command that is process 1 leaves its fence when it is killed, because its guard dies with it; run again, it completes', async () => {
    const swap = ['restore', 'swap', 'acme', '--yes'];
    const command = await stopCommand(world, swap, { more, launcher });
    expect(await ownGuards()).to.have.length(1);
    await command.killAlone();
    expect(await ownGuards()).to.deep.equal([]);
    expect(await fences()).to.deep.equal([{ closed: true }]);
    expect(await titles()).to.deep.equal(['status 503']);
    expect(await run('databases')).to.include('a command has ended behind the fence; its requests wait');

    await run(...swap);
    expect(await fences()).to.deep.equal([]);
    expect(await titles())
      .to.include('archived')
      .and.not.include('later');
    expect((await acme.post(path, { Title: 'served again' })).status).to.equal(201);
    await run('restore', 'back', 'acme', '--yes');
    expect(await titles())
      .to.include('later')
      .and.not.include('served again');
  });

  it('a killed command that is not process 1 has its fence lifted by its guard', async () => {
    const command = await stopCommand(world, ['restore', 'swap', 'acme', '--yes'], { more });
    await command.killAlone();
    await eventually(async () => (await fences()).length === 0);
    expect(await titles()).to.include('later');
    expect((await acme.post(path, { Title: 'served by the guard' })).status).to.equal(201);
  });
});
