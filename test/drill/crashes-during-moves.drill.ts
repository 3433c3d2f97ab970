import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import type { DatabaseStep } from '../../src/operator/databases/database-protocol.ts';
import type { Client } from '../support/client.ts';
import { startScript } from '../support/command-line.ts';
import { CrashingServer } from '../support/crashing-server.ts';
import { eventually } from '../support/eventually.ts';
import { runCommand } from '../support/run-command.ts';
import { createWorld, type World } from '../support/world.ts';
import { notWrittenOnce } from '../support/written-once.ts';

const path = '/api/v1/EntityStatus';
/** The steps before which a server is killed, as the command prints them. */
const steps: DatabaseStep[] = [
  'fill',
  'copy ahead',
  'close current',
  'copy changes',
  'exchange',
  'open current',
  'serve',
];

describe('drill: crashes of PostgreSQL servers during moves', () => {
  let world: World;
  let servers: Record<string, CrashingServer>;
  let acme: Client;
  const acknowledged = new Set<string>();
  let isOver = false;
  let writing: Promise<unknown>;
  let number = 0;

  before(async function () {
    this.timeout(120_000);
    servers = { second: await CrashingServer.start('second'), third: await CrashingServer.start('third') };
    world = await createWorld({ ACQUIRE_TIMEOUT_MS: '9000' });
    for (const [name, { url }] of Object.entries(servers)) await run(['server', 'add', name], url);
    const moved = await run(['move', 'acme', '--to', 'second', '--pause', '60']);
    expect(moved.code, moved.stderr).to.equal(0);
    acme = await world.login(world.acme);
    writing = Promise.all([write(), write()]);
  });
  after(async () => {
    isOver = true;
    await writing;
    await world.close();
    for (const server of Object.values(servers)) await server.close();
  });

  const run = (args: string[], input = '') => runCommand('scripts/tenant.ts', args, world.environment, input);
  const serverOf = async (): Promise<string> => JSON.parse((await run(['show', 'acme', '--json'])).stdout).server;

  async function write(): Promise<void> {
    while (!isOver) {
      const Title = `status ${++number}`;
      const { status } = await acme.post(path, { Title }).catch(() => ({ status: 0 }));
      if (status === 201) acknowledged.add(Title);
      await sleep(40);
    }
  }

  for (const side of ['old', 'new'])
    for (const step of steps)
      it(`a crash of the ${side} server before the step ${step} loses no write, and the tenant is served again by itself`, async function () {
        this.timeout(180_000);
        const from = await serverOf();
        const to = from === 'second' ? 'third' : 'second';
        const crashing = servers[side === 'old' ? from : to] as CrashingServer;
        const args = ['move', 'acme', '--to', to, '--pause', '60', '--json'];
        const running = startScript('scripts/tenant.ts', args, world.environment);
        await eventually(
          () => running.output.stdout.includes(`"step":"${step}"`) || running.process.exitCode !== null,
          60_000,
        );
        await crashing.crash();
        await sleep(500);
        await crashing.restart();
        await running.ended;
        const startedAt = performance.now();
        await eventually(
          async () => (await acme.post(path, { Title: `${side} ${step} ${++number}` })).status === 201,
          90_000,
        );
        console.log(`served again ${Math.round(performance.now() - startedAt)} ms after the command has ended`);
        const again = await run(args);
        if (again.code !== 0) expect(again.stderr).to.include('is on');
        expect(await serverOf()).to.equal(to);
        const known = [...acknowledged];
        const { body } = await acme.get(path, { 'Cache-Control': 'no-cache' });
        expect(notWrittenOnce(known, body)).to.deep.equal([]);
      });
});
