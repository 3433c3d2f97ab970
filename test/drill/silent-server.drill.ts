import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { expect } from 'chai';
import { runScript } from '../support/command-line.ts';
import { createWorld, type World } from '../support/world.ts';

describe('drill: a database server that accepts connections and never responds', () => {
  let world: World;
  let server: Server;
  let url: string;
  const sockets = new Set<Socket>();

  before(async () => {
    world = await createWorld();
    server = createServer(socket => sockets.add(socket.on('error', () => {}))).listen(
      0,
      '127.0.0.1',
    );
    await once(server, 'listening');
    url = `postgresql://operator:secret-word@127.0.0.1:${(server.address() as AddressInfo).port}/office`;
  });
  after(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await world.close();
  });

  it('service and command line report a silent control database in one line', async () => {
    const environment = { ...world.environment, DATABASE_URL: url };

    for (const [script, ...args] of [
      ['src/main.ts'],
      ['scripts/tenant.ts', 'list'],
      ['scripts/control.ts', 'migrate'],
    ]) {
      const startedAt = performance.now();
      const { code, stdout, stderr } = await runScript(script ?? '', args, environment);
      console.log({ script, ms: performance.now() - startedAt, stderr });

      expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
      expect(stderr).to.match(/^[^\n]*it does not respond[^\n]*DATABASE_URL[^\n]*\n$/);
    }
  });

  it('server add reports a silent server in one line', async () => {
    const { code, stderr } = await runScript(
      'scripts/tenant.ts',
      ['server', 'add', 'second'],
      world.environment,
      url,
    );

    expect(code).to.equal(1);
    expect(stderr).to.match(
      /^The server second cannot be used: it does not respond\.[^\n]*server add second\n$/,
    );
  });
});
