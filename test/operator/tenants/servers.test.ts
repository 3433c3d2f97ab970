import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../../src/embedded/postgres.ts';
import { runScript } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { createWorld, type TestTenant, type World } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('Servers', () => {
  let world: World;
  let folder: string;
  let second: EmbeddedPostgres;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-second-'));
    [world, second] = await Promise.all([
      createWorld(),
      startEmbeddedPostgres(folder, { settings: ['fsync=off', 'max_connections=50'] }),
    ]);
  });
  after(async () => {
    await world.close();
    await second.leave();
    await rm(folder, { recursive: true, force: true });
  });

  const run = (args: string[], input = '') => runScript('scripts/tenant.ts', args, world.environment, input);
  const provision = async (slug: string, ...more: string[]): Promise<TestTenant & { server: string }> => {
    const args = ['provision', slug, '--name', slug, '--admin-email', `admin@${slug}.test`, '--json', ...more];
    const { code, stdout, stderr } = await run(args);
    expect(code, stderr).to.equal(0);
    return JSON.parse(stdout);
  };

  it('are added with their URL on stdin, and refused when they cannot be used', async () => {
    expect((await run(['server', 'add', 'second', '--capacity', '100'], second.url)).code).to.equal(0);
    expect((await run(['server', 'add', 'second'], second.url)).code, 'the same name').to.equal(1);
    expect((await run(['server', 'add', 'third'], 'not a url')).code).to.equal(2);
    const unreachable = await run(['server', 'add', 'third'], 'postgresql://u:very-secret@127.0.0.1:1/x');
    expect(unreachable.code).to.equal(1);
    expect(unreachable.stderr).not.to.include('very-secret');
    const { stdout } = await run(['server', 'list', '--json']);
    expect(JSON.parse(stdout).map(({ name, tenants }: Record<string, unknown>) => [name, tenants])).to.deep.equal([
      ['default', 2],
      ['second', 0],
    ]);
    expect(stdout).not.to.match(/postgres(ql)?:\/\//);
  });

  it('hold the tenants placed on them, and one that is down leaves the tenants of the others untouched', async () => {
    const far = await provision('far', '--server', 'second');
    const near = await provision('near');
    expect([far.server, near.server]).to.deep.equal(['second', 'default']);
    const [there, here] = [await world.login(far), await world.login(world.acme)];
    expect((await there.get(path)).body).to.have.length(3);
    expect((await there.post(path, { Title: 'Far away' })).status).to.equal(201);
    expect((await here.get(path)).body).to.have.length(3);

    await second.leave();
    const refused = await eventually(async () => {
      const answer = await there.get(path, { 'Cache-Control': 'no-cache' });
      return answer.status === 503 && answer;
    });
    expect(refused).to.have.property('headers');
    for (let i = 0; i < 20; i++) expect((await here.get(path)).status).to.equal(200);
    const ready = await fetch(`http://127.0.0.1:${world.service.managementPort}/health/ready`);
    expect(ready.status).to.equal(200);
    // The world removes its tenants from the suite's server; this one is on the server that is gone.
    await world.control.em.fork().execute(`delete from tenants where slug = 'far'`);
  });
});
