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

  describe('a move that is killed before the tenant has its new database', () => {
    before(async () => {
      await servers.runWell(['backup', 'init']);
      await servers.runWell(['backup', 'run', '--all']);
    });

    for (const [args, left] of [
      [['databases', 'prune'], []],
      [['databases', 'prune', 'acme'], []],
      [['restore', 'acme', '--archive', 'latest'], ['default filled']],
    ] as [string[], string[]][])
      it(`the fence of a move that was killed before the switch is lifted by: ${args.join(' ')}`, async () => {
        await (await stop(there)).kill();
        const [current, target] = await servers.databases();
        expect(current?.why).to.equal(
          'a command has ended behind the fence; its requests wait: npx backoffice databases prune acme',
        );
        expect((await acme.get(path, { 'Cache-Control': 'no-cache' })).status).to.equal(503);
        await servers.runWell(args);
        await expectServed(`after ${args.join(' ')}`);
        expect(target?.state).to.equal('reserved');
        expect(await servers.namesOn('second', target?.database)).to.deep.equal([]);
        expect(await servers.states()).to.deep.equal(['default current', ...left]);
      });

    it('a move that was killed before the switch moves the tenant when it is run again', async () => {
      await (await stop(there)).kill();
      await servers.move(...there);
      expect(await servers.states()).to.deep.equal(['default filled', 'default kept', 'second current']);
      await expectServed('moved');
      await servers.move(...back);
    });
  });

  describe('a move that is killed when the tenant has its new database', () => {
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
});
