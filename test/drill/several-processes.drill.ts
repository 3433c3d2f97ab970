import { expect } from 'chai';
import { type RunningScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, type World } from '../support/world.ts';

describe('drill: several processes on one control database', () => {
  let world: World;
  const processes: RunningScript[] = [];

  before(async () => {
    world = await createWorld();
  });
  after(async () => {
    for (const { process: child } of processes) child.kill('SIGKILL');
    await Promise.all(processes.map(({ ended }) => ended));
    await world.close();
  });

  /** @returns the URL of a new process that listens on a port of its own, without a `PUBLIC_URL` */
  async function start(): Promise<string> {
    const environment = { ...world.environment, PORT: '0', MANAGEMENT_PORT: '0', PUBLIC_URL: '' };
    const running = startScript('src/main.ts', [], environment);
    processes.push(running);
    const port = await eventually(() => /"port":(\d+)/.exec(running.output.stdout)?.[1], 60_000);
    return `http://127.0.0.1:${port}`;
  }

  it('tokens of one process are accepted by another one on another port, without PUBLIC_URL', async () => {
    const [first, second] = await Promise.all([start(), start()]);
    const admin = (await world.login(world.acme)).at(first);
    const login = await admin.post('/api/v1/auth/login', world.acme.admin, { 'X-Tenant': world.acme.guid });
    const { accessToken, refreshToken } = login.body;
    const statuses: number[] = [];
    for (let i = 0; i < 20; i++) {
      const url = i % 2 === 0 ? first : second;
      const response = await fetch(`${url}/api/v1/EntityStatus`, {
        headers: { Authorization: `Bearer ${accessToken}` },
      });
      statuses.push(response.status);
    }
    expect(statuses).to.deep.equal(Array(20).fill(200));
    const refreshed = await admin
      .at(second)
      .post('/api/v1/auth/refresh', { refreshToken }, { 'X-Tenant': world.acme.guid });
    expect(refreshed.status).to.equal(200);
  });
});
