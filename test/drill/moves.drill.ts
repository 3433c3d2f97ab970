import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import {
  type DatabaseStep,
  databaseProtocol,
} from '../../src/operator/databases/protocol/database-protocol.ts';
import { MovedWrites } from '../operator/databases/moved-writes.ts';
import { backupSettings } from '../support/backup-settings.ts';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { jsonLines } from '../support/json-lines.ts';
import { useServerFolder } from '../support/server-folder.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { guardProcesses, stopCommand } from '../support/stopped-command.ts';
import { TwoServers } from '../support/two-servers.ts';
import { use } from '../support/use.ts';

const path = '/api/v1/EntityStatus';
const there = ['acme', '--to', 'second'];
const back = ['acme', '--back'];
/** The steps before which a server crashes. */
const crashSteps: readonly DatabaseStep[] = [
  'fill',
  'copy ahead',
  'close current',
  'copy changes',
  'exchange',
  'open current',
  'serve',
];

describe('drill: moves of a tenant that are killed, and whose servers crash', () => {
  const archives = useServerFolder('archives');
  const servers = use(async () => {
    const settings = { ACQUIRE_TIMEOUT_MS: '9000', ...(await backupSettings(archives)) };
    return TwoServers.start(settings, ['synchronous_commit=on']);
  });
  const processes = useServiceProcesses();
  let acme: Client;
  let writes: MovedWrites;
  /** The records that acme has for sure. */
  const written: string[] = [];

  before(async () => {
    acme = await servers.world.login(servers.world.acme);
    writes = await MovedWrites.start(servers);
  });

  const stop = (args: string[], at: 'change' | 'lift' = 'change') =>
    stopCommand(servers.world, ['move', ...args, '--pause', '60'], { at });
  const fences = () => servers.world.control.em.fork().execute('select from tenant_fences');
  const isServed = async (Title: string) => (await acme.post(path, { Title })).status === 201;

  /** Writes until `work` has ended, and expects that acme has every write of this drill. */
  async function during<T>(work: () => Promise<T>, mayFail = false): Promise<T> {
    const { result, titles } = await writes.during(work, mayFail);
    written.push(...titles);
    await writes.expectAll(written);
    return result;
  }

  /**
   * Moves acme there, unless a run has done so, and expects that nothing is left of earlier
   * runs.
   */
  async function moveAgain(from: string, to: string): Promise<void> {
    const { code, stderr } = await servers.runWhenFree([
      'move',
      'acme',
      '--to',
      to,
      '--pause',
      '60',
    ]);
    if (code !== 0) expect(stderr).to.include(`acme is on ${to} already`);
    await servers.runWell(['databases', 'prune', 'acme']);
    expect(await servers.states()).to.have.members([`${to} current`, `${from} kept`]);
  }

  it('the fence of a move that was killed before the switch is lifted by a restore beside the tenant', async () => {
    await servers.runWell(['backup', 'init']);
    await servers.runWell(['backup', 'run', '--all']);

    await (await stop(there)).kill();
    const [current, target] = await servers.databases();
    expect(current?.why).to.equal(
      'a command has ended behind the fence; its requests wait: bin/backoffice databases prune acme',
    );
    expect((await acme.get(path, { 'Cache-Control': 'no-cache' })).status).to.equal(503);
    expect(servers.world.logs.join('')).to.include('fence_overdue');

    await servers.runWell(['restore', 'acme', '--archive', 'latest']);
    expect(await isServed('after the restore')).to.equal(true);
    expect(target?.state).to.equal('reserved');
    expect(await servers.namesOn('second', target?.database)).to.deep.equal([]);
    expect(await servers.states()).to.deep.equal(['default current', 'default filled']);

    const restored =
      (await servers.databases()).find(({ state }) => state === 'filled')?.database ?? '';
    await servers.runWell(['databases', 'drop', 'acme', restored, '--yes']);
  });

  it('a move that was killed after the switch is reported by the same command, which lifts its fence and moves nothing', async () => {
    await (await stop(there, 'lift')).kill();
    expect(await fences()).to.have.length(1);
    expect(await servers.move(...there)).to.include({
      slug: 'acme',
      from: 'default',
      to: 'second',
    });
    expect(await isServed('there')).to.equal(true);
    expect((await servers.run(['move', ...there])).stderr).to.include('acme is on second already');

    await (await stop(back, 'lift')).kill();
    expect(await servers.move(...back)).to.include({ slug: 'acme', from: 'second', to: 'default' });
    expect(await servers.serverOf()).to.equal('default');
    expect(await isServed('back')).to.equal(true);
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
    expect(await isServed('undone')).to.equal(true);
  });

  for (const step of databaseProtocol('move', false)) {
    it(`a move that is killed before the step ${step} fails no request, loses no write, and is replaced by the next one`, async () => {
      const [from, to] = [await servers.serverOf(), await servers.otherServer()];

      await during(async () => {
        const { process: command, ended } = await servers.startMove(step, 'acme', '--to', to);
        command.kill('SIGKILL');
        await ended;

        const killedAt = performance.now();
        await eventually(() => isServed(`killed before ${step}`));
        console.log(`served ${Math.round(performance.now() - killedAt)} ms after the kill`);
        await moveAgain(from, to);
      });
    });
  }

  it('a process of the service that is killed during a move delays it by a few seconds at most', async () => {
    const { url, process: child } = await processes.start(servers.world.environment);
    expect((await acme.at(url).get(path)).status).to.equal(200);

    const { stdout } = await during(async () => {
      const moving = await servers.startMove(
        'announce fence',
        'acme',
        '--to',
        await servers.otherServer(),
      );
      child.kill('SIGKILL');
      return moving.ended;
    });

    expect(jsonLines(stdout).at(-1).pauseMs).to.be.below(4_000);
  });

  it('a process that is stopped over the switch writes nothing to the old database, and goes on in the new one', async () => {
    const { url, process: child } = await processes.start(servers.world.environment);
    const stopped = acme.at(url);
    expect((await stopped.post(path, { Title: 'before the stop' })).status).to.equal(201);

    child.kill('SIGSTOP');
    const titles = Array.from({ length: 5 }, (_, index) => `late ${index}`);
    const late = titles.map(Title => stopped.post(path, { Title }));
    await sleep(4_000); // longer than a process without a heartbeat is waited for
    await servers.move('acme', '--to', await servers.otherServer());
    child.kill('SIGCONT');

    for (const [index, { status }] of (await Promise.all(late)).entries()) {
      if (status === 201) written.push(titles[index] ?? '');
    }

    await eventually(
      async () => (await stopped.post(path, { Title: 'after the stop' })).status === 201,
    );
    await writes.expectAll(written);
  });

  for (const step of crashSteps) {
    for (const side of ['new', 'old'] as const) {
      it(`a crash of the ${side} server before the step ${step} loses no write, and the tenant is served again by itself`, async () => {
        const [from, to] = side === 'new' ? ['default', 'second'] : ['second', 'default'];
        if ((await servers.serverOf()) !== from) await servers.move('acme', '--to', from);

        await during(async () => {
          const { ended } = await servers.startMove(step, 'acme', '--to', to);
          await servers.second.crash();
          await sleep(500);
          await servers.second.restart();
          await ended;

          const endedAt = performance.now();
          await eventually(() => isServed(`${side} ${step}`), 90_000);
          console.log(
            `served again ${Math.round(performance.now() - endedAt)} ms after the command has ended`,
          );

          await moveAgain(from, to);
        }, true);
      });
    }
  }
});
