import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { useServerFolder } from '../support/server-folder.ts';
import { guardProcesses, stopCommand } from '../support/stopped-command.ts';
import { TwoServers } from '../support/two-servers.ts';

const path = '/api/v1/EntityStatus';
const there = ['acme', '--to', 'second'];
const back = ['acme', '--back'];

describe('drill: killed moves', () => {
  let servers: TwoServers;
  const archives = useServerFolder('archives');
  let acme: Client;

  before(async () => {
    servers = await TwoServers.start({ ACQUIRE_TIMEOUT_MS: '2000', BACKUP_TARGET: archives });
    acme = await servers.world.login(servers.world.acme);
  });
  after(async () => {
    await servers.close();
  });

  const stop = (args: string[], at: 'change' | 'lift' = 'change') =>
    stopCommand(servers.world, ['move', ...args, '--pause', '60'], { at });
  const fences = () => servers.world.control.em.fork().execute('select from tenant_fences');
  async function expectServed(Title: string): Promise<void> {
    expect((await acme.post(path, { Title })).status).to.equal(201);
  }

  it('the fence of a move that was killed before the switch is lifted by a restore beside the tenant', async () => {
    await servers.runWell(['backup', 'init']);
    await servers.runWell(['backup', 'run', '--all']);
    await (await stop(there)).kill();
    const [current, target] = await servers.databases();
    expect(current?.why).to.equal(
      'a command has ended behind the fence; its requests wait: npx backoffice databases prune acme',
    );
    expect((await acme.get(path, { 'Cache-Control': 'no-cache' })).status).to.equal(503);
    await servers.runWell(['restore', 'acme', '--archive', 'latest']);
    await expectServed('after the restore');
    expect(target?.state).to.equal('reserved');
    expect(await servers.namesOn('second', target?.database)).to.deep.equal([]);
    expect(await servers.states()).to.deep.equal(['default current', 'default filled']);
  });

  it('a move that was killed after the switch is reported by the same command, which lifts its fence and moves nothing', async () => {
    await (await stop(there, 'lift')).kill();
    expect(await fences()).to.have.length(1);
    expect(await servers.move(...there)).to.include({ slug: 'acme', from: 'default', to: 'second' });
    await expectServed('there');
    expect((await servers.run(['move', ...there])).stderr).to.include('acme is on second already');

    await (await stop(back, 'lift')).kill();
    expect(await servers.move(...back)).to.include({ slug: 'acme', from: 'second', to: 'default' });
    expect(await servers.serverOf()).to.equal('default');
    await expectServed('back');
  });

  it('a move that was killed after the switch is reported by the same command also when its guard has lifted the fence', async () => {
    expect(await servers.move(...back)).to.include({ from: 'default', to: 'second' });
    await (await stop(back, 'lift')).killAlone();
    const isOwn = ({ environment }: { environment: string }) =>
      environment.includes(`${servers.world.environment.DATABASE_URL}\0`);
    await eventually(async () => !(await guardProcesses()).some(isOwn));
    expect(await fences()).to.deep.equal([]);
    expect(await servers.move(...back)).to.include({ from: 'second', to: 'default' });
    expect(await servers.serverOf()).to.equal('default');
  });

  it('move --back undoes a move that was killed after the switch', async () => {
    await (await stop(there, 'lift')).kill();
    expect(await servers.move(...back)).to.include({ from: 'second', to: 'default' });
    expect(await servers.serverOf()).to.equal('default');
    await expectServed('undone');
  });
});
