import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { useRestoredTenant } from '../support/restored-tenant.ts';
import { guardProcesses, stopCommand } from '../support/stopped-command.ts';
import { controlSql } from '../support/world.ts';

/**
 * Runs a program as process 1 of a namespace, as a container does: with it, the kernel kills
 * all other processes.
 */
const launcher = ['unshare', '--pid', '--fork', '--mount-proc'] as const;

describe('drill: a command that is process 1 of its container', () => {
  before(function () {
    const [program, ...args] = launcher;
    if (spawnSync(program, [...args, 'true']).status === 0) return;
    console.log(
      '      unshare cannot make a namespace for processes here: what needs one is not tested',
    );
    this.skip();
  });
  const { world, run, post, titles } = useRestoredTenant();

  it('process 1 of a container ends at a SIGTERM that comes while its modules still load', async () => {
    const [program, ...args] = launcher;
    const loading = `data:text/javascript,console.log('loading'); setTimeout(() => {}, 60000); await new Promise(() => {})`;
    const node = [
      process.execPath,
      '--import',
      './src/lib/runtime/require-node.js',
      '--import',
      loading,
      'src/main.ts',
    ];
    const namespace = spawn(program, [...args, ...node], { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(namespace.stdout, 'data');

    const children = await readFile(
      `/proc/${namespace.pid}/task/${namespace.pid}/children`,
      'utf8',
    );
    process.kill(Number(children), 'SIGTERM');

    expect(await once(namespace, 'exit')).to.deep.equal([143, null]);
  });

  const ownGuards = async (): Promise<number> =>
    (await guardProcesses()).filter(({ environment }) =>
      environment.includes(`${world.environment.DATABASE_URL}\0`),
    ).length;
  const fences = () => controlSql<{ closed: boolean }>(world, 'select closed from tenant_fences');

  it('a command that is process 1 leaves its fence when it is killed, because its guard dies with it; run again, it completes', async () => {
    const swap = ['restore', 'swap', 'acme', '--yes'];
    const command = await stopCommand(world, swap, { launcher });
    expect(await ownGuards()).to.equal(1);
    await command.killAlone();
    expect(await ownGuards()).to.equal(0);
    expect(await fences()).to.deep.equal([{ closed: true }]);
    expect(await titles()).to.deep.equal(['status 503']);
    expect(await run('databases')).to.include(
      'a command has ended behind the fence; its requests wait',
    );

    await run(...swap);
    expect(await fences()).to.deep.equal([]);
    expect(await titles())
      .to.include('restored')
      .and.not.include('later');
    expect(await post('served again')).to.equal(201);
    await run('restore', 'back', 'acme', '--yes');
    expect(await titles())
      .to.include('later')
      .and.not.include('served again');
  });
});
