import { rm } from 'node:fs/promises';
import { expect } from 'chai';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../../src/embedded/postgres.ts';
import type { ListedDatabase } from '../../../src/operator/databases/list-databases.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { guardProcesses, stopCommand } from '../../support/stopped-command.ts';
import { createWorld, type World } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('a move that is killed when the tenant has its new database', () => {
  let world: World;
  let folder: string;
  let second: EmbeddedPostgres;
  let acme: Client;

  before(async () => {
    folder = await makeServerFolder('second');
    [world, second] = await Promise.all([
      createWorld({ ACQUIRE_TIMEOUT_MS: '2000' }),
      startEmbeddedPostgres(folder, { settings: ['fsync=off', 'max_connections=50'] }),
    ]);
    acme = await world.login(world.acme);
    expect((await run(['server', 'add', 'second'], second.url)).code).to.equal(0);
  });
  after(async () => {
    await world.close();
    await second.leave();
    await rm(folder, { recursive: true, force: true });
  });

  const run = (args: string[], input = '') => runCommand('scripts/tenant.ts', args, world.environment, input);
  const there = ['move', 'acme', '--to', 'second', '--pause', '60', '--json'];
  const back = ['move', 'acme', '--back', '--pause', '60', '--json'];
  async function move(args: string[]): Promise<Record<string, unknown>> {
    const { code, stdout, stderr } = await run(args);
    expect(code, stderr + stdout).to.equal(0);
    return JSON.parse(stdout.trim().split('\n').at(-1) ?? '');
  }
  const server = async (): Promise<string | undefined> => {
    const listed: ListedDatabase[] = JSON.parse((await run(['databases', 'acme', '--json'])).stdout);
    return listed.find(({ state }) => state === 'current')?.server;
  };
  const fences = () => world.control.em.fork().execute('select from tenant_fences');

  it('is reported by the same command, which lifts its fence and moves nothing', async () => {
    await (await stopCommand(world, there, { at: 'lift' })).kill();
    expect(await fences()).to.have.length(1);
    expect(await move(there)).to.include({ slug: 'acme', from: 'default', to: 'second' });
    expect((await acme.post(path, { Title: 'there' })).status).to.equal(201);
    expect((await run(there)).stderr).to.include('acme is on second already');

    await (await stopCommand(world, back, { at: 'lift' })).kill();
    expect(await move(back)).to.include({ slug: 'acme', from: 'second', to: 'default' });
    expect(await server()).to.equal('default');
    expect((await acme.post(path, { Title: 'back' })).status).to.equal(201);
  });

  it('is reported by the same command also when the process that outlives it has lifted the fence', async () => {
    expect(await move(back)).to.include({ from: 'default', to: 'second' });
    await (await stopCommand(world, back, { at: 'lift' })).killAlone();
    const isOwn = ({ environment }: { environment: string }) =>
      environment.includes(`${world.environment.DATABASE_URL}\0`);
    await eventually(async () => !(await guardProcesses()).some(isOwn));
    expect(await fences()).to.deep.equal([]);
    expect(await move(back)).to.include({ from: 'second', to: 'default' });
    expect(await server()).to.equal('default');
  });

  it('is undone by --back, if the command was to move it there', async () => {
    await (await stopCommand(world, there, { at: 'lift' })).kill();
    expect(await move(back)).to.include({ from: 'second', to: 'default' });
    expect(await server()).to.equal('default');
    expect((await acme.post(path, { Title: 'undone' })).status).to.equal(201);
  });
});
